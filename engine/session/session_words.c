/* What a session says of itself when it does not fit into memory. */
#include "engine/session/session_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct dpe_session_knobs *knobs_of(const struct dpe_session_options *options)
{
    static const struct dpe_session_knobs fields = {.length = "length",
                                                    .chunk = "prefill chunk",
                                                    .branches = "number of branches",
                                                    .max_memory = "max_memory"};
    const struct dpe_session_knobs *own = &options->knobs;
    bool named = own->length != NULL || own->chunk != NULL || own->branches != NULL ||
                 own->peers != NULL || own->max_memory != NULL;
    return named ? own : &fields;
}

const char *dpe_session_size_words(const struct dpe_session_options *options,
                                   char text[DPE_SESSION_WORDS])
{
    char of[96];
    if (options->branches > 1) {
        snprintf(of, sizeof of, "%" PRId64 " sequences of up to %" PRId64, options->branches,
                 options->positions);
    } else {
        snprintf(of, sizeof of, "%" PRId64, options->capacity);
    }
    snprintf(text, DPE_SESSION_WORDS, "a session of %s tokens in chunks of %" PRId64, of,
             options->prefill_chunk);
    return text;
}

const char *dpe_session_less_words(const struct dpe_session_options *options,
                                   char text[DPE_SESSION_WORDS])
{
    const struct dpe_session_knobs *knobs = knobs_of(options);
    const char *smaller[3] = {NULL};
    int n = 0;
    if (knobs->length != NULL) {
        smaller[n++] = knobs->length;
    }
    if (knobs->chunk != NULL && options->prefill_chunk > 1) {
        smaller[n++] = knobs->chunk;
    }
    if (knobs->branches != NULL && options->branches > 1) {
        smaller[n++] = knobs->branches;
    }
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < n; i++) {
        const char *before = i == 0 ? "a smaller " : i + 1 == n ? " or " : ", ";
        snprintf(text + used, DPE_SESSION_WORDS - used, "%s%s", before, smaller[i]);
        used = strlen(text);
    }
    if (knobs->peers != NULL) {
        snprintf(text + used, DPE_SESSION_WORDS - used, "%sa larger %s", n > 0 ? ", or " : "",
                 knobs->peers);
        used = strlen(text);
    }
    if (used > 0) {
        snprintf(text + used, DPE_SESSION_WORDS - used, " needs less");
    }
    return text;
}

const char *dpe_session_memory_word(const struct dpe_session_options *options)
{
    return options->max_memory != 0 ? knobs_of(options)->max_memory : NULL;
}
