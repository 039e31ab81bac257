/* check TOOL [--update]: the help of a tool is exactly tests/cli/TOOL.help, and each line of
 * tests/cli/TOOL.errors
 * ("EXIT|WORDS THAT MUST APPEAR|ARGUMENTS") ends with that exit code, prints those words on stderr
 * and nothing on stdout, and leaves no file. TOOL may be dpe-TOOL-COMMAND for the command of a
 * tool: its page has "= --NAME" for an option that stands in tests/cli/TOOL.options, once for all
 * commands ("/2": as it stands there the second time). After an intended change, --update rewrites
 * the help; read the diff. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <sys/stat.h>

#include "tests/lib/tool_run.h"

int TOOL_MAIN(int argc, char **argv);

static const char *tool; /* as its files are called */
static bool update;

/* One run, of the tool's command where it has one. */
static int run(const char *arguments)
{
    char name[64];
    char line[4096];
    const char *dash = strrchr(tool, '-');
    const bool command = strncmp(tool, "dpe-", 4) == 0 && dash > tool + 3;
    snprintf(name, sizeof name, "%.*s", command ? (int)(dash - tool) : 63, tool);
    snprintf(line, sizeof line, "%s %s", command ? dash + 1 : "", arguments);
    return tool_end(tool_begin(TOOL_MAIN, name, line));
}

static void expect_page(const char *arguments)
{
    if (run(arguments) != 0 || tool_err[0] != '\0') {
        fail_msg("%s %s: %s", tool, arguments, tool_err);
    }
}

/* The end of an option of a page, which has its words on the lines below; NULL: none begins here.
 */
static const char *option_end(const char *line)
{
    size_t spaces = strspn(line, " ");
    if (spaces < 2 || spaces > 6 || line[spaces] != '-') {
        return NULL;
    }
    do {
        line = strchr(line, '\n');
        line = line != NULL ? line + 1 : "";
    } while (strspn(line, " ") > 6);
    return line;
}

/* Writes a command's page with the options that `shared` has as lines that name them; with --update
 * those that it has not are added. */
static void fold_options(const char *page, char *shared, size_t most, char *out, size_t room)
{
    bool example = false; /* whose lines may begin as options do */
    out[0] = '\0';
    while (*page != '\0') {
        example = strncmp(page, "Example", 7) == 0 || (example && *page != '\n');
        const char *end = example ? NULL : option_end(page);
        const char *line = strchr(page, '\n');
        size_t n = end != NULL    ? (size_t)(end - page)
                   : line != NULL ? (size_t)(line + 1 - page)
                                  : strlen(page);
        if (end == NULL) {
            dpe_append(out, room, "%.*s", (int)n, page);
            page += n;
            continue;
        }
        char name[64];
        const char *dash = strstr(page, "--");
        snprintf(name, sizeof name, "%.*s", (int)strcspn(dash, "=[ \n"), dash);
        int which = 0;
        bool found = false;
        for (const char *at = shared; *at != '\0' && !found;) {
            const char *next = option_end(at);
            assert_non_null(next);
            const char *own = strstr(at, "--");
            which +=
                strncmp(own, name, strlen(name)) == 0 && strchr("=[ \n", own[strlen(name)]) != NULL;
            found = (size_t)(next - at) == n && memcmp(at, page, n) == 0;
            at = next;
        }
        if (!found && update) {
            which++;
            dpe_append(shared, most, "%.*s", (int)n, page);
        }
        if (found || update) {
            dpe_append(out, room, "= %s", name);
            if (which > 1) {
                dpe_append(out, room, "/%d", which);
            }
            dpe_append(out, room, "\n");
        } else {
            dpe_append(out, room, "%.*s", (int)n, page);
        }
        page += n;
    }
}

/* The golden file has the short page, a line, and the page of all options, where that is another.
 */
static void help_is_as_it_was(void **state)
{
    static char both[sizeof tool_out], golden[sizeof tool_out];
    char path[512];
    (void)state;
    snprintf(path, sizeof path, DPE_SOURCE_DIR "/tests/cli/%s.help", tool);
    expect_page("--help");
    snprintf(both, sizeof both, "%s", tool_out);
    expect_page("--help=all");
    if (strcmp(both, tool_out) != 0) {
        dpe_append(both, sizeof both, "---- --help=all\n%s", tool_out);
    }
    const char *dash = strrchr(tool, '-');
    if (strncmp(tool, "dpe-", 4) == 0 && dash > tool + 3) {
        static char shared[sizeof tool_out], folded[sizeof tool_out];
        char options[512];
        snprintf(options, sizeof options, DPE_SOURCE_DIR "/tests/cli/%.*s.options",
                 (int)(dash - tool), tool);
        tool_read(options, shared, sizeof shared);
        fold_options(both, shared, sizeof shared, folded, sizeof folded);
        snprintf(both, sizeof both, "%s", folded);
        if (update) {
            tool_write(options, shared);
        }
    }
    if (update) {
        tool_write(path, both);
    }
    tool_read(path, golden, sizeof golden);
    if (strcmp(both, golden) != 0) {
        fail_msg("%s --help differs from %s:\n%s", tool, path, both);
    }
}

static int compare(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* The options of a text, one a line; `page`: of help, where they are indented. */
static int find_options(const char *text, bool page, char names[256][48])
{
    int n = 0;
    for (const char *at = text; at != NULL && *at != '\0' && n < 256; at = strchr(at, '\n')) {
        at += *at == '\n';
        size_t spaces = strspn(at, " ");
        const char *name = at + spaces;
        name += page && name[0] == '-' && name[1] != '-' && strncmp(name + 2, ", ", 2) == 0 ? 4 : 0;
        if (strncmp(name, "--", 2) == 0 && (page ? spaces >= 2 && spaces <= 6 : spaces == 0)) {
            snprintf(names[n++], sizeof names[0], "%.*s",
                     (int)strspn(name, "-abcdefghijklmnopqrstuvwxyz0123456789"), name);
        }
    }
    qsort(names, (size_t)n, sizeof names[0], compare);
    int kept = 0; /* an option's values have lines of their own */
    for (int i = 0; i < n; i++) {
        if (kept == 0 || strcmp(names[kept - 1], names[i]) != 0) {
            memmove(names[kept++], names[i], sizeof names[0]);
        }
    }
    return kept;
}

/* Help and completion have the same options; short forms and the version are there. */
static void completion_is_of_the_same_options(void **state)
{
    static char page[256][48], words[256][48], help[sizeof tool_out];
    (void)state;
    expect_page("--help=all");
    const int n = find_options(tool_out, true, page);
    expect_page("--completion");
    assert_int_equal(find_options(tool_out, false, words), n);
    for (int i = 0; i < n; i++) {
        assert_string_equal(page[i], words[i]);
    }
    expect_page("--help");
    snprintf(help, sizeof help, "%s", tool_out);
    expect_page("-h");
    assert_string_equal(tool_out, help);
    expect_page("-v");
    assert_int_equal(strncmp(tool_out, "dpe 0.", 6), 0);
    expect_page("--version");
    assert_int_equal(strncmp(tool_out, "dpe 0.", 6), 0);
}

static void replace(char *text, size_t size, const char *what, const char *with)
{
    for (char *at = strstr(text, what); at != NULL; at = strstr(at + strlen(with), what)) {
        const size_t rest = strlen(at + strlen(what)) + 1;
        assert_true((size_t)(at - text) + strlen(with) + rest <= size);
        memmove(at + strlen(with), at + strlen(what), rest);
        memcpy(at, with, strlen(with));
    }
}

static void make_files(void)
{
    char text[128];
    assert_int_equal(mkdir("empty", 0700), 0);
    assert_int_equal(mkdir("world", 0700), 0);
    tool_write("world/config.json", "not json");
    tool_write("text.txt", "some words\n");
    tool_write("norms.h5", "no table");
    tool_write("special.txt", "a <|bos|> b\n");
    tool_write("options", "# no model\n\n  --prompt = hello you \nn 3\n");
    tool_write("options-1", "chat\n--=3\n");
    tool_write("options-2", "options x\n");
    tool_write("options-3", "chats");
    snprintf(text, sizeof text, "\xef\xbb\xbfm %s/empty\r\nprompt hello", tool_dir);
    tool_write("options-4", text);
}

static int count_files(const char *folder)
{
    DIR *dir = opendir(folder);
    int n = 0;
    assert_non_null(dir);
    while (readdir(dir) != NULL) {
        n++;
    }
    closedir(dir);
    return n;
}

static void try_line(char *line)
{
    char arguments[2048];
    char *words = strchr(line, '|');
    assert_non_null(words);
    *words++ = '\0';
    char *rest = strchr(words, '|');
    assert_non_null(rest);
    *rest++ = '\0';
    snprintf(arguments, sizeof arguments, "%s", rest);
    replace(arguments, sizeof arguments, "@ROOT@", DPE_SOURCE_DIR);
    replace(arguments, sizeof arguments, "@NAME@", strrchr(tool_dir, '/') + 1);
    replace(arguments, sizeof arguments, "@WORK@", tool_dir);
    replace(arguments, sizeof arguments, "\\377", "\377");
    replace(arguments, sizeof arguments, "\\351", "\351");
    const int files = count_files("empty") + count_files("world");
    const int code = run(arguments);
    if (code != atoi(line) || strstr(tool_err, words) == NULL || tool_out[0] != '\0') {
        fail_msg("%s %s\nexit %d, expected %s and '%s' on stderr alone, found: %s%s", tool,
                 arguments, code, line, words, tool_err, tool_out);
    }
    if (count_files("empty") + count_files("world") != files) {
        fail_msg("%s %s: left files", tool, arguments);
    }
}

static void lines_are_refused(void **state)
{
    static char lines[1 << 16];
    char path[512];
    (void)state;
    snprintf(path, sizeof path, DPE_SOURCE_DIR "/tests/cli/%s.errors", tool);
    if (access(path, F_OK) != 0) {
        return;
    }
    tool_read(path, lines, sizeof lines);
    make_files();
    expect_page("--help"); /* out and err are there */
    for (char *line = strtok(lines, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        if (line[0] != '#') {
            try_line(line);
        }
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(help_is_as_it_was),
        cmocka_unit_test(completion_is_of_the_same_options),
        cmocka_unit_test(lines_are_refused),
    };
    if (argc < 2) {
        return 64;
    }
    tool = argv[1];
    update = argc > 2;
    setenv("COLUMNS", "80", 1);
    setenv("LC_ALL", "C", 1);
    return cmocka_run_group_tests(tests, tool_folder, tool_folder_gone);
}
