/* The interpreter of chat templates at the end of a pipe, for template_diff.py.
 *     template_probe FILE: a JSON object of variables on stdin, the text on stdout. strftime_now
 * has the day 2 Feb 2024, 15:04:05. Exit status as the tools. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/json.h"
#include "eval/template/template.h"

static dpe_status render(const char *path, const char *json, size_t n, struct dpe_text *out,
                         struct dpe_error *err)
{
    struct tm now = {.tm_year = 124,
                     .tm_mon = 1,
                     .tm_mday = 2,
                     .tm_wday = 5,
                     .tm_yday = 32,
                     .tm_hour = 15,
                     .tm_min = 4,
                     .tm_sec = 5};
    const struct dpe_template_options options = {.now = &now};
    struct dpe_template *parsed = NULL;
    char *source = NULL;
    size_t size = 0;
    json_t *variables = NULL;
    dpe_status status = dpe_json_parse_exact("stdin", json, n, &variables, err);
    if (status == DPE_OK) {
        status = dpe_read_file(path, 1 << 20, &source, &size, err);
    }
    if (status == DPE_OK) {
        status = dpe_template_parse(path, source, size, &parsed, err);
    }
    if (status == DPE_OK) {
        status = dpe_template_render(parsed, variables, &options, out, err);
    }
    dpe_template_free(parsed);
    json_decref(variables);
    free(source);
    return status;
}

int main(int argc, char **argv)
{
    struct dpe_text json = {0};
    struct dpe_text out = {0};
    struct dpe_error err = {0};
    char piece[4096];
    size_t n = 0;
    if (argc != 2) {
        fprintf(stderr, "template_probe FILE < VARIABLES\n");
        return 64;
    }
    while ((n = fread(piece, 1, sizeof piece, stdin)) > 0) {
        if (dpe_text_append(&json, piece, n, &err) != DPE_OK) {
            return dpe_exit_code(err.status);
        }
    }
    dpe_status status = render(argv[1], json.bytes != NULL ? json.bytes : "", json.n, &out, &err);
    if (status == DPE_OK) {
        fwrite(out.bytes, 1, out.n, stdout);
    } else {
        fprintf(stderr, "%s\n", err.text);
    }
    dpe_text_free(&json);
    dpe_text_free(&out);
    return dpe_exit_code(status);
}
