/* Which members of a request are read, which never change an answer, and which value of the others
 * changes nothing. */
#include <string.h>

#include "engine/text/json.h"
#include "eval/serve/serve_tool.h"

enum {
    COMPLETION = 1 << SERVE_COMPLETION,
    CHAT = 1 << SERVE_CHAT,
    RULER = 1 << SERVE_RULER,
    RULER_ONE = 1 << SERVE_RULER_ONE,
    NORMS = 1 << SERVE_NORMS,
    TOKENIZE = 1 << SERVE_TOKENIZE,
    DETOKENIZE = 1 << SERVE_DETOKENIZE,
    TEXT = COMPLETION | CHAT | RULER | RULER_ONE,
};

/* Members that are read, and by what. */
static const struct {
    const char *key;
    unsigned by;
} members_read[] = {
    {"prompt", COMPLETION | RULER_ONE | NORMS | TOKENIZE},
    {"prompts", RULER},
    {"messages", CHAT | TOKENIZE},
    {"tokens", DETOKENIZE},
    {"add_generation_prompt", CHAT | TOKENIZE},
    {"add_special_tokens", COMPLETION | RULER | RULER_ONE | NORMS | TOKENIZE},
    {"cache_salt", TEXT},
    {"dpe_plan", TEXT | NORMS},
    {"products", NORMS},
    {"return_token_ids", COMPLETION},
    {"chat_template_kwargs", CHAT | TOKENIZE},
    {"tools", CHAT | TOKENIZE},
    {"tool_choice", CHAT | TOKENIZE},
    {"max_tokens", COMPLETION | CHAT | RULER_ONE},
    {"max_completion_tokens", CHAT},
    {"tokens_to_generate", RULER},
    {"temperature", TEXT},
    {"top_p", TEXT},
    {"top_k", TEXT},
    {"seed", COMPLETION | CHAT | RULER_ONE},
    {"random_seed", RULER},
    {"n", COMPLETION | CHAT},
    {"best_of", COMPLETION | CHAT},
    {"stop", COMPLETION | CHAT | RULER_ONE},
    {"stop_words_list", RULER},
    {"ignore_eos", TEXT},
    {"echo", COMPLETION},
    {"logprobs", COMPLETION | CHAT},
    {"top_logprobs", CHAT},
    {"stream", COMPLETION | CHAT},
    {"stream_options", COMPLETION | CHAT},
};

/* Members that never change an answer here: who asks, where it is stored, how soon and how it is
 * computed, and the numbers of methods of sampling that other members would switch on. */
static const char inert[] =
    "model user user_id metadata store service_tier safety_identifier request_id "
    "prompt_cache_key prompt_cache_retention prompt_cache_options parallel_tool_calls "
    "prediction priority keep_alive cache_prompt use_cache id_slot n_keep n_discard "
    "n_cache_reuse separate_reasoning stream_reasoning return_progress mirostat_tau "
    "mirostat_eta xtc_threshold dry_base dry_allowed_length dry_penalty_last_n "
    "dry_sequence_breakers dynatemp_exponent smoothing_curve repeat_last_n "
    "repetition_penalty_range min_keep";

/* What changes nothing, where that is something else than nothing (null, false, 0, "", [], {}). A
 * member that is listed with none of the values has none but null. */
static const struct rule {
    const char *key;
    double number; /* 0: none */
    const char *word;
    bool yes;   /* true */
    bool empty; /* what says nothing changes nothing as well */
    const char *instead;
} rules[] = {
    /* Factors, and counts of what is kept. */
    {"repetition_penalty", 1.0, NULL, false, true, NULL},
    {"repeat_penalty", 1.0, NULL, false, true, NULL},
    {"length_penalty", 1.0, NULL, false, true, NULL},
    {"encoder_repetition_penalty", 1.0, NULL, false, true, NULL},
    {"guidance_scale", 1.0, NULL, false, true, NULL},
    {"typical_p", 1.0, NULL, false, true, NULL},
    {"tfs", 1.0, NULL, false, true, NULL},
    {"tfs_z", 1.0, NULL, false, true, NULL},
    {"top_n_sigma", -1.0, NULL, false, true, NULL},
    {"num_beams", 1.0, NULL, false, true, NULL},
    {"num_beam_groups", 1.0, NULL, false, true, NULL},
    {"beam_width", 1.0, NULL, false, true, NULL},
    {"num_return_sequences", 1.0, NULL, false, true, "n"},
    {"t_max_predict_ms", -1.0, NULL, false, true, NULL},
    /* Words. */
    {"tool_choice", 0.0, "none", false, true, NULL},
    {"function_call", 0.0, "none", false, true, NULL},
    {"response_format", 0.0, "text", false, true, NULL},
    {"modalities", 0.0, "text", false, true, NULL},
    {"verbosity", 0.0, "medium", false, true, NULL},
    {"truncation", 0.0, "disabled", false, true, NULL},
    /* What is on unless it is switched off. */
    {"skip_special_tokens", 0.0, NULL, true, false, NULL},
    {"spaces_between_special_tokens", 0.0, NULL, true, false, NULL},
    {"detokenize", 0.0, NULL, true, false, NULL},
    {"do_sample", 0.0, NULL, true, false, "temperature 0"},
    {"enable_thinking", 0.0, NULL, false, false, "chat_template_kwargs"},
    {"thinking", 0.0, NULL, false, false, "chat_template_kwargs"},
    {"think", 0.0, NULL, false, false, "chat_template_kwargs"},
    {"thinking_budget", 0.0, NULL, false, false, "chat_template_kwargs"},
    {"include_reasoning", 0.0, NULL, true, false, NULL},
    {"add_bos", 0.0, NULL, true, false, "add_special_tokens"},
    {"add_bos_token", 0.0, NULL, true, false, "add_special_tokens"},
    {"add_special", 0.0, NULL, true, false, "add_special_tokens"},
    {"parse_special", 0.0, NULL, true, false, NULL},
    /* The length by other names, where 0 is a length. */
    {"n_predict", 0.0, NULL, false, false, "max_tokens"},
    {"num_predict", 0.0, NULL, false, false, "max_tokens"},
    {"max_length", 0.0, NULL, false, false, "max_tokens"},
    {"max_new_tokens", 0.0, NULL, false, false, "max_tokens"},
    {"max_gen_toks", 0.0, NULL, false, false, "max_tokens"},
    {"max_output_tokens", 0.0, NULL, false, false, "max_tokens"},
    {"max_tokens_to_sample", 0.0, NULL, false, false, "max_tokens"},
    {"max_tokens", 0.0, NULL, false, false, NULL},
    {"max_completion_tokens", 0.0, NULL, false, false, "max_tokens"},
    {"tokens_to_generate", 0.0, NULL, false, false, "max_tokens"},
    {"temp", 0.0, NULL, false, false, "temperature"},
    {"random_seed", 0.0, NULL, false, false, "seed"},
};

static const struct rule *find_rule(const char *key)
{
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        if (strcmp(rules[i].key, key) == 0) {
            return &rules[i];
        }
    }
    return NULL;
}

/* A word, {"type": word}, or a list of that one word. */
static const char *word_of(const json_t *value)
{
    const json_t *type = json_is_object(value)  ? json_object_get(value, "type")
                         : json_is_array(value) ? json_array_get(value, 0)
                                                : value;
    return json_is_string(value) || json_array_size(value) == 1 || json_object_size(value) == 1
               ? json_string_value(type)
               : NULL;
}

static bool changes_nothing(const char *key, const json_t *value, bool tools)
{
    const struct rule *rule = find_rule(key);
    const char *word = word_of(value);
    if (json_is_null(value) || rule == NULL) {
        return dpe_json_is_nothing(value);
    }
    if (word != NULL && (strcmp(key, "tool_choice") == 0 || strcmp(key, "function_call") == 0) &&
        !tools && strcmp(word, "auto") == 0) {
        return true;
    }
    return (rule->empty && dpe_json_is_nothing(value)) || (rule->yes && json_is_true(value)) ||
           (rule->number != 0.0 && json_is_number(value) &&
            json_number_value(value) == rule->number) ||
           (rule->word != NULL && word != NULL && strcmp(word, rule->word) == 0);
}

static bool is_read(const char *key, unsigned by)
{
    for (size_t i = 0; i < sizeof members_read / sizeof members_read[0]; i++) {
        if (strcmp(members_read[i].key, key) == 0) {
            return (members_read[i].by & by) != 0;
        }
    }
    for (size_t at = 0, n = 0; at < sizeof inert - 1; at += n + 1) {
        n = strcspn(inert + at, " ");
        if (strlen(key) == n && memcmp(inert + at, key, n) == 0) {
            return true;
        }
    }
    return false;
}

static void refuse_member(const char *key, struct dpe_serve_refusal *refusal)
{
    const struct rule *rule = find_rule(key);
    const char *instead = rule != NULL ? rule->instead : NULL;
    char name[96];
    dpe_json_quote(name, key, strlen(key));
    dpe_serve_refuse_as(refusal, 400, "unsupported_parameter", name,
                        "%s: not supported by dpe-serve; %s%s", name,
                        instead != NULL ? "give " : "leave it out", instead != NULL ? instead : "");
}

bool dpe_serve_check_members(const json_t *body, unsigned kinds, struct dpe_serve_refusal *refusal)
{
    bool tools = !dpe_json_is_nothing(json_object_get(body, "tools")) ||
                 !dpe_json_is_nothing(json_object_get(body, "functions"));
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)body, key, value)
    {
        if (!is_read(key, kinds) && !changes_nothing(key, value, tools)) {
            refuse_member(key, refusal);
        }
    }
    return refusal->status == 0;
}
