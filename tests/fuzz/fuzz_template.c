/* Chat templates: refused, or rendered within the limits. The first line may hold variables as
 * JSON. */
#include <jansson.h>
#include <string.h>

#include "eval/template/template.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static const char usual[] =
        "{\"messages\": [{\"role\": \"system\", \"content\": \" a \"}, {\"role\": \"user\", "
        "\"content\": \"\\u00fc b\"}], \"add_generation_prompt\": true, \"bos_token\": \"<s>\"}";
    const uint8_t *end = n > 0 && bytes[0] == '{' ? memchr(bytes, '\n', n) : NULL;
    json_t *variables =
        end != NULL ? json_loadb((const char *)bytes, (size_t)(end - bytes), 0, NULL) : NULL;
    if (variables != NULL) {
        n -= (size_t)(end + 1 - bytes);
        bytes = end + 1;
    } else {
        variables = json_loads(usual, 0, NULL);
    }
    fuzz_expect(variables != NULL, "variables");
    const struct tm now = {.tm_year = 124, .tm_mday = 1};
    const struct dpe_template_options options = {
        .now = &now, .most_steps = 20000, .most_memory = 1 << 24};
    struct dpe_template *parsed = NULL;
    struct dpe_error err = {0};
    struct dpe_text out = {0};
    dpe_status status = dpe_template_parse("t", (const char *)bytes, n, &parsed, &err);
    if (status == DPE_OK) {
        status = dpe_template_render(parsed, variables, &options, &out, &err);
        fuzz_expect(out.n <= options.most_memory, "the output is within the limit");
    }
    fuzz_expect(status == DPE_OK || status == DPE_BAD_DATA, "a template is rendered or refused");
    fuzz_expect(status == DPE_OK || err.text[0] != '\0', "an error has a text");
    dpe_template_free(parsed);
    dpe_text_free(&out);
    json_decref(variables);
    return 0;
}
