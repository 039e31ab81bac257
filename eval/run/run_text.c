/* Texts in and out: files, standard input, the stream of an answer. */
#include <string.h>
#include <sys/stat.h>

#include "eval/run/run_tool.h"

static const uint64_t most_bytes = UINT64_C(1) << 34;

static dpe_status read_stdin(uint64_t most, char **bytes, size_t *n, struct dpe_error *err)
{
    DPE_SCOPED(dpe_text_free) struct dpe_text text = {0};
    char piece[1 << 14];
    size_t got = 0;
    while ((got = fread(piece, 1, sizeof piece, stdin)) > 0) {
        if (most > 0 && text.n + got > most) {
            return dpe_fail(err, DPE_NO_MEMORY,
                            "standard input has %zu bytes or more, --max-memory allows %llu",
                            text.n + got, (unsigned long long)most);
        }
        DPE_TRY(dpe_text_append(&text, piece, got, err));
        DPE_TRY(dpe_signals_poll(NULL, err));
    }
    if (ferror(stdin)) {
        return dpe_fail(err, DPE_IO, "standard input cannot be read");
    }
    DPE_TRY(dpe_text_append(&text, "", 1, err));
    *bytes = text.bytes;
    *n = text.n - 1;
    text = (struct dpe_text){0};
    return DPE_OK;
}

dpe_status dpe_run_tool_read(const struct run *run, const char *file, char **bytes, size_t *n,
                             struct dpe_error *err)
{
    struct stat info;
    uint64_t most = run->args->tool.max_memory;
    if (strcmp(file, "-") == 0) {
        DPE_TRY(read_stdin(most, bytes, n, err));
        if (dpe_signals_asked() == DPE_STOP_NOW) {
            DPE_TRY(dpe_signals_poll(NULL, err));
        }
        return DPE_OK;
    }
    if (most > 0 && stat(file, &info) == 0 && (uint64_t)info.st_size > most) {
        return dpe_fail(err, DPE_NO_MEMORY, "%s: the file has %lld bytes, --max-memory allows %llu",
                        file, (long long)info.st_size, (unsigned long long)most);
    }
    return dpe_read_file(file, most_bytes, bytes, n, err);
}

void dpe_run_tool_print(struct stream *stream, const int32_t *ids, size_t n, bool last)
{
    DPE_SCOPED(dpe_text_free) struct dpe_text text = {0};
    if (dpe_tokenizer_decode(stream->tokenizer, ids, n, true, &text, NULL) == DPE_OK) {
        size_t end = text.n;
        bool unfinished = end >= 3 && memcmp(text.bytes + end - 3, "\xef\xbf\xbd", 3) == 0;
        end -= unfinished && !last ? 3 : 0;
        if (end > stream->printed) {
            fwrite(text.bytes + stream->printed, 1, end - stream->printed, stdout);
            fflush(stdout);
            stream->printed = end;
        }
    }
}

bool dpe_run_tool_token(void *user, const int32_t *generated, size_t n)
{
    struct stream *stream = user;
    dpe_run_tool_print(stream, generated, n, false);
    stream->late = dpe_clock() > stream->deadline;
    bool ended = n > 0 && dpe_chat_ends_with(&stream->ends, generated[n - 1]);
    return ended || stream->late || dpe_signals_asked() != DPE_STOP_NONE || ferror(stdout);
}
