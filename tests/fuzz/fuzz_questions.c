/* Files of SQuAD and HotpotQA, and templates of prompts: refused, or questions that can be asked.
 */
#include <string.h>

#include "eval/ruler/ruler.h"
#include "eval/task/prompt.h"
#include "tests/fuzz/fuzz.h"

static void check(struct dpe_qa *qa)
{
    fuzz_expect(qa->n_questions > 0 && qa->documents.n > 0, "there is something to ask");
    for (size_t i = 0; i < qa->n_questions; i++) {
        const struct dpe_qa_question *question = qa->questions + i;
        fuzz_expect(json_array_size(question->answers) > 0 && question->n_gold > 0,
                    "a question has answers and documents");
        fuzz_expect(json_is_string(question->text), "a question has a text");
        fuzz_expect(question->gold + question->n_gold <= qa->n_gold,
                    "documents lie inside the list");
    }
    for (size_t i = 0; i < qa->n_gold; i++) {
        fuzz_expect(qa->gold[i] < qa->documents.n, "a document exists");
    }
    for (size_t i = 0; i < qa->documents.n; i++) {
        fuzz_expect(strlen(qa->documents.at[i]) < SIZE_MAX, "a document is a text");
    }
    dpe_qa_free(qa);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static const struct dpe_phrase_field fields[] = {
        {.name = "one", .needed = "a b", .allowed = "c"},
        {.name = "two", .needed = "", .allowed = "a", .fallback = ""},
        {.name = "words", .needed = "", .allowed = "", .list = true},
    };
    enum { STRINGS = 2, FIELDS = 3 };
    static const struct dpe_phrase_value values[] = {
        {"a", "A"}, {"b", "{a}"}, {"c", ""}, {NULL, NULL}};
    const char *path = fuzz_file("questions.json", bytes, n);
    struct dpe_error err = {0};
    struct dpe_qa qa;
    struct dpe_phrases phrases;
    struct dpe_text text = {0};
    if (dpe_qa_read(path, DPE_QA_SQUAD, &qa, &err) == DPE_OK) {
        check(&qa);
    } else {
        fuzz_expect(err.text[0] != '\0', "an error has a text");
    }
    if (dpe_qa_read(path, DPE_QA_HOTPOTQA, &qa, &err) == DPE_OK) {
        check(&qa);
    }
    if (dpe_phrases_open(path, &dpe_builtin_ruler, fields, FIELDS, &phrases, &err) == DPE_OK) {
        for (size_t i = 0; i < STRINGS; i++) {
            dpe_phrases_put(&phrases, fields[i].name, values, &text);
        }
        dpe_text_free(&text);
        dpe_phrases_free(&phrases);
    }
    return 0;
}
