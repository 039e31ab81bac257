/* The readings of runtimes against what the runtimes themselves computed
 * (tests/golden/runtimes.json), and those of runtimes whose source was read against formulas. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "outputs/export/runtimes.h"

static json_t *golden;

static int load(void **state)
{
    (void)state;
    golden = json_load_file(DPE_SOURCE_DIR "/tests/golden/runtimes.json", 0, NULL);
    return golden == NULL;
}

static int unload(void **state)
{
    (void)state;
    json_decref(golden);
    return 0;
}

static const struct dpe_reading *find(const struct dpe_readings *readings, const char *name,
                                      bool older)
{
    for (int i = 0; i < readings->n; i++) {
        const struct dpe_runtime *row = readings->of[i].runtime;
        if (strcmp(row->name, name) == 0 && row->older == older) {
            return &readings->of[i];
        }
    }
    fail_msg("no row %s", name);
    return NULL;
}

static void read_config(const json_t *config, int64_t length, struct dpe_readings *readings)
{
    struct dpe_error err = {0};
    char *text = json_dumps(config, 0);
    if (dpe_readings_make("config.json", text, strlen(text), "all", 0, length, readings, &err) !=
        DPE_OK) {
        fail_msg("%s", err.text);
    }
    free(text);
}

/* "": the reading is the runtime's answer; else in what they differ. */
static const char *compare(const struct dpe_reading *reading, const json_t *answer, size_t step)
{
    static char text[400];
    const char *refused = json_string_value(json_object_get(answer, "refused"));
    const json_t *list = json_object_get(answer, "inv_freq");
    const json_t *longest = json_object_get(answer, "longest");
    double rows = json_number_value(json_object_get(answer, "rows"));
    text[0] = '\0';
    if ((refused != NULL) != (reading->refused[0] != '\0')) {
        snprintf(text, sizeof text, "refused: expected \"%s\", found \"%s\"",
                 refused == NULL ? "" : refused, reading->refused);
        return text;
    }
    if (refused != NULL) {
        return text;
    }
    double factor = json_number_value(json_object_get(answer, "factor"));
    if (!(fabs(reading->factor - factor) <= 2e-6 * factor)) {
        snprintf(text, sizeof text, "factor: expected %.9g, found %.9g", factor, reading->factor);
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        double want = json_number_value(json_array_get(list, i));
        double found = reading->inv_freq[i * step];
        if (!(fabs(found - want) <= 3e-6 * want)) {
            snprintf(text, sizeof text, "pair %zu: expected %.9g, found %.9g", i * step, want,
                     found);
        }
    }
    double most = longest == NULL ? reading->longest : json_number_value(longest);
    most = rows > 0.0 && rows < most && reading->switch_length == 0 ? rows : most;
    if (reading->longest != most) {
        snprintf(text, sizeof text, "longest: expected %.0f, found %.0f", most, reading->longest);
    }
    return text;
}

/* Every case of every runtime that was imported. */
static void as_the_runtimes(void **state)
{
    (void)state;
    static const struct {
        const char *key, *name;
        bool older;
    } runtimes[] = {{"transformers", "transformers", false},
                    {"transformers4", "transformers", true},
                    {"vllm", "vLLM", false},
                    {"mlx", "MLX", false},
                    {"exllamav3", "exllamav3", false}};
    size_t step = (size_t)json_integer_value(json_object_get(golden, "step"));
    const json_t *cases = json_object_get(golden, "cases");
    int wrong = 0;
    int threads = 0;
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *item = json_array_get(cases, i);
        struct dpe_readings readings;
        read_config(json_object_get(item, "config"),
                    json_integer_value(json_object_get(item, "length")), &readings);
        threads += json_string_value(json_object_get(item, "thread"))[0] != '\0';
        for (size_t k = 0; k < sizeof runtimes / sizeof runtimes[0]; k++) {
            const json_t *answer =
                json_object_get(json_object_get(item, "answers"), runtimes[k].key);
            const char *differs =
                compare(find(&readings, runtimes[k].name, runtimes[k].older), answer, step);
            if (answer == NULL || differs[0] != '\0') {
                print_message("%s (%s), %s: %s\n", json_string_value(json_object_get(item, "name")),
                              json_string_value(json_object_get(item, "thread")), runtimes[k].key,
                              differs);
                wrong++;
            }
        }
        dpe_readings_free(&readings);
    }
    assert_true(threads >= 15);
    assert_int_equal(wrong, 0);
}

/* ---------------------------------------------------------------------------------- llama.cpp */

static double key(const json_t *keys, const char *name, double absent)
{
    const json_t *value = json_object_get(keys, name);
    return json_is_number(value) ? json_number_value(value) : absent;
}

static double mscale(double factor, double of)
{
    return factor <= 1.0 ? 1.0 : 0.1 * of * log(factor) + 1.0;
}

/* Of the keys that its converter wrote: what its loader and its rotation make of them
 * (llama-context.cpp and ggml's rope_yarn of 0c1e570), in double. ext_factor is 1 for yarn. */
static void from_keys(const json_t *keys, int64_t length, double head_dim, double original_absent,
                      size_t step, size_t n, double *inv_freq, double *factor)
{
    const char *type = json_string_value(json_object_get(keys, "rope_scaling_type"));
    bool yarn = type != NULL && strcmp(type, "yarn") == 0;
    double base = key(keys, "rope_freq_base", 10000.0);
    double d = key(keys, "rope_dimension_count", head_dim);
    double s = key(keys, "rope_scaling_factor", 1.0);
    double original = key(keys, "rope_scaling_orig_ctx_len", original_absent);
    double all = key(keys, "rope_scaling_yarn_log_mul", 0.0);
    double turns[] = {key(keys, "rope_scaling_yarn_beta_fast", 32.0),
                      key(keys, "rope_scaling_yarn_beta_slow", 1.0)};
    double low = fmax(0.0, floor(d * log(original / (turns[0] * 2.0 * M_PI)) / (2.0 * log(base))));
    double high =
        fmin(d - 1.0, ceil(d * log(original / (turns[1] * 2.0 * M_PI)) / (2.0 * log(base))));
    const json_t *divisors = json_object_get(keys, "rope_freqs.weight");
    if (divisors == NULL) {
        divisors = json_object_get(keys, (double)length > original ? "rope_factors_long.weight"
                                                                   : "rope_factors_short.weight");
    }
    for (size_t i = 0; i < n; i++) {
        double j = (double)(i * step);
        double own = divisors == NULL ? 1.0 : json_number_value(json_array_get(divisors, i));
        double theta = pow(base, -2.0 * j / d) / own;
        double ramp = 1.0 - fmin(1.0, fmax(0.0, (j - low) / fmax(0.001, high - low)));
        inv_freq[i] = yarn ? theta / s * (1.0 - ramp) + theta * ramp : theta / s;
    }
    *factor = !yarn ? 1.0 : all != 0.0 ? mscale(s, 1.0) / mscale(s, all) : mscale(s, 1.0);
    *factor *= key(keys, "rope_scaling_attn_factors", 1.0);
}

static void as_llama_cpp_s_converter(void **state)
{
    (void)state;
    size_t step = (size_t)json_integer_value(json_object_get(golden, "step"));
    const json_t *cases = json_object_get(golden, "cases");
    int wrong = 0;
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *item = json_array_get(cases, i);
        const json_t *config = json_object_get(item, "config");
        const json_t *keys = json_object_get(json_object_get(item, "answers"), "llama.cpp");
        int64_t length = json_integer_value(json_object_get(item, "length"));
        struct dpe_readings readings;
        read_config(config, length, &readings);
        const struct dpe_reading *reading = find(&readings, "llama.cpp", false);
        double want[16];
        double factor = 0.0;
        size_t n = ((size_t)key(keys, "rope_dimension_count", 128.0) / 2 + step - 1) / step;
        from_keys(keys, length, 2.0 * (double)readings.n_pairs, key(keys, "context_length", 0.0),
                  step, n, want, &factor);
        bool good = reading->refused[0] == '\0' && fabs(reading->factor - factor) <= 2e-6 * factor;
        for (size_t k = 0; k < n && good; k++) {
            good = fabs(reading->inv_freq[k * step] - want[k]) <= 3e-6 * want[k];
        }
        good = good && reading->growth == key(keys, "attn_temperature_scale", 0.0);
        if (!good) {
            print_message("%s: factor %.9g, expected %.9g; %s\n",
                          json_string_value(json_object_get(item, "name")), reading->factor, factor,
                          reading->refused);
            wrong++;
        }
        dpe_readings_free(&readings);
    }
    assert_int_equal(wrong, 0);
}

/* ------------------------------------------------------------- rows whose source was only read */

static const char ministral[] =
    "{\"model_type\": \"ministral3\", \"head_dim\": 128, \"max_position_embeddings\": 262144, "
    "\"rope_parameters\": {\"rope_type\": \"yarn\", \"rope_theta\": 1e6, \"factor\": 16, "
    "\"original_max_position_embeddings\": 8192, \"mscale\": 1, \"mscale_all_dim\": 1, "
    "\"llama_4_scaling_beta\": 0.1}}";

static void make(const char *json, int64_t length, struct dpe_readings *readings)
{
    struct dpe_error err = {0};
    if (dpe_readings_make("config.json", json, strlen(json), "all", 0, length, readings, &err) !=
        DPE_OK) {
        fail_msg("%s", err.text);
    }
}

static void growth_of_queries(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool older;
        double growth, length;
    } rows[] = {
        {"transformers", false, 0.1, 8192.0}, {"vLLM", false, 0.0, 0.0},
        {"SGLang", false, 0.1, 16384.0},      {"llama.cpp", false, 0.1, 8192.0},
        {"MLX", false, 0.1, 8192.0},          {"exllamav3", false, 0.1, 8192.0},
    };
    struct dpe_readings readings;
    make(ministral, 100000, &readings);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct dpe_reading *reading = find(&readings, rows[i].name, rows[i].older);
        if (reading->growth != rows[i].growth || reading->growth_length != rows[i].length) {
            fail_msg("%s: %g after %g", rows[i].name, reading->growth, reading->growth_length);
        }
    }
    assert_non_null(strstr(find(&readings, "vLLM", false)->notes[0], "llama_4_scaling_beta"));
    assert_true(find(&readings, "transformers", true)->refused[0] != '\0');
    /* mscale over itself is 1; the versions before leave the pair out. */
    assert_true(find(&readings, "vLLM", false)->factor == 1.0);
    assert_true(fabs(find(&readings, "vLLM", true)->factor - mscale(16.0, 1.0)) < 1e-12);
    assert_true(fabs(find(&readings, "SGLang", false)->factor - 1.0) < 1e-12);
    assert_false(readings.agree);
    dpe_readings_free(&readings);
}

static void yarn_and_dynamic_in_sglang(void **state)
{
    (void)state;
    static const char yarn[] =
        "{\"model_type\": \"llama\", \"hidden_size\": 1024, \"num_attention_heads\": 16, "
        "\"max_position_embeddings\": 40960, \"rope_theta\": 1e5, \"rope_scaling\": "
        "{\"rope_type\": "
        "\"yarn\", \"factor\": 8, \"original_max_position_embeddings\": 5120, "
        "\"attention_factor\": 1.5, \"attn_factor\": 1.25}}";
    static const char dynamic[] =
        "{\"model_type\": \"llama\", \"hidden_size\": 1024, \"num_attention_heads\": 16, "
        "\"max_position_embeddings\": 4096, \"rope_theta\": 1e5, \"rope_scaling\": {\"rope_type\": "
        "\"dynamic\", \"factor\": 3}}";
    struct dpe_readings readings;
    make(yarn, 40960, &readings);
    const struct dpe_reading *reading = find(&readings, "SGLang", false);
    assert_true(fabs(reading->factor - 1.25 * mscale(8.0, 1.0)) < 1e-12);
    assert_true(reading->longest == 40960.0 && reading->n_notes == 2);
    assert_true(find(&readings, "transformers", false)->factor == 1.5);
    assert_true(find(&readings, "vLLM", false)->factor == 1.5);
    assert_true(fabs(find(&readings, "vLLM", true)->factor - 1.25 * mscale(8.0, 1.0)) < 1e-12);
    dpe_readings_free(&readings);
    make(dynamic, 1000, &readings);
    reading = find(&readings, "SGLang", false);
    double base = 1e5 * pow(3.0 * 3.0 - 2.0, 64.0 / 62.0);
    assert_true(fabs(reading->inv_freq[10] * pow(base, 20.0 / 64.0) - 1.0) < 1e-12);
    assert_true(reading->longest == 3.0 * 4096.0);
    reading = find(&readings, "vLLM", false);
    assert_true(fabs(reading->inv_freq[10] * pow(1e5, 20.0 / 64.0) - 1.0) < 1e-12);
    assert_true(reading->longest == 4096.0);
    dpe_readings_free(&readings);
}

/* Runtimes are compared at the length that is asked for. */
static void agreement(void **state)
{
    (void)state;
    static const char plain[] =
        "{\"model_type\": \"llama\", \"hidden_size\": 1024, \"num_attention_heads\": 16, "
        "\"max_position_embeddings\": 4096, \"rope_theta\": 1e5}";
    struct dpe_readings readings;
    struct dpe_error err = {0};
    make(plain, 0, &readings);
    assert_true(readings.agree && readings.length == 4096 && readings.n_kinds == 1);
    dpe_readings_free(&readings);
    make(plain, 4097, &readings);
    assert_true(readings.agree && readings.n_kinds == 1);
    int shorter = 0; /* vLLM and SGLang refuse such a text, and rotate alike */
    for (int i = 0; i < readings.n; i++) {
        shorter += readings.of[i].longest < 4097.0;
    }
    assert_true(shorter > 0 && shorter < readings.n);
    dpe_readings_free(&readings);
    assert_int_equal(
        dpe_readings_make("c", plain, strlen(plain), "vLLM,SGLang", 0, 4096, &readings, &err),
        DPE_OK);
    assert_int_equal(readings.n, 2);
    dpe_readings_free(&readings);
    static const struct {
        const char *json, *which;
        dpe_status status;
        const char *says;
    } wrong[] = {
        {plain, "vLLM,SGLan", DPE_USAGE, "found \"vLLM,SGLan\""},
        {"{\"max_position_embeddings\": 4096}", "all", DPE_BAD_DATA, "expected head_dim"},
        {"{\"head_dim\": 64, \"max_position_embeddings\": \"4096\"}", "all", DPE_BAD_DATA,
         "max_position_embeddings"},
        {"{\"head_dim\": 64, \"max_position_embeddings\": 4096, \"rope_scaling\": [", "all",
         DPE_BAD_DATA, "c:"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        dpe_status status = dpe_readings_make("c", wrong[i].json, strlen(wrong[i].json),
                                              wrong[i].which, 0, 0, &readings, &err);
        dpe_readings_free(&readings);
        if (status != wrong[i].status || strstr(err.text, wrong[i].says) == NULL) {
            fail_msg("%zu: %d, %s", i, (int)status, err.text);
        }
    }
}

/* What a file leaves out has the value of the class, as --info knows. */
static void classes_fill_in(void **state)
{
    (void)state;
    static const struct {
        const char *json, *type;
        int64_t pairs, length;
        double base;
        int64_t turning; /* pairs, 0: all */
    } cases[] = {
        {"{\"model_type\": \"glm4\", \"head_dim\": 96, \"num_attention_heads\": 8, \"rope_theta\": "
         "7000, \"max_position_embeddings\": 4096}",
         "default", 48, 4096, 7e3, 24},
        {"{\"model_type\": \"qwen3_next\", \"max_position_embeddings\": 4096}", "default", 128,
         4096, 1e4, 32},
        {"{\"model_type\": \"gemma3\", \"text_config\": {\"hidden_size\": 640, \"rope_scaling\": "
         "{\"rope_type\": \"linear\", \"factor\": 3}}}",
         "linear", 128, 131072, 1e6},
        {"{\"model_type\": \"gemma3_text\", \"max_position_embeddings\": 2048}", "default", 128,
         2048, 1e6},
        {"{\"model_type\": \"gemma2\", \"hidden_size\": 2304, \"num_attention_heads\": 8, "
         "\"max_position_embeddings\": 8192}",
         "default", 128, 8192, 1e4},
        {"{\"model_type\": \"ministral3\"}", "yarn", 64, 262144, 1e6},
        {"{\"model_type\": \"mistral3\", \"text_config\": {\"head_dim\": 96, "
         "\"max_position_embeddings\": 4096}}",
         "default", 48, 4096, 1e4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dpe_readings readings;
        make(cases[i].json, 0, &readings);
        const struct dpe_reading *reading = find(&readings, "transformers", false);
        assert_string_equal(reading->type, cases[i].type);
        assert_int_equal(readings.n_pairs, cases[i].pairs);
        assert_int_equal(readings.length, cases[i].length);
        assert_true(reading->base == cases[i].base);
        int64_t turning = 0;
        for (int64_t p = 0; p < readings.n_pairs; p++) {
            turning += reading->inv_freq[p] > 0.0;
        }
        assert_int_equal(turning, cases[i].turning > 0 ? cases[i].turning : readings.n_pairs);
        dpe_readings_free(&readings);
    }
}

/* A class that is no family here is named, and a length is given where none is in the file. */
static void classes_that_nobody_knows(void **state)
{
    (void)state;
    static const char rest[] = "\"head_dim\": 64, \"rope_theta\": 5000}";
    static const char *const types[] = {"llama", "nobody_v1_dense", "gemma2", "mamba9", ""};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        struct dpe_readings readings;
        struct dpe_error err = {0};
        char json[160];
        snprintf(json, sizeof json, "{\"model_type\": \"%s\", %s", types[i], rest);
        const char *text = i < 4 ? json : "{\"head_dim\": 64, \"rope_theta\": 5000}";
        assert_int_equal(
            dpe_readings_make("c", text, strlen(text), "current", 0, 9000, &readings, &err),
            DPE_BAD_DATA);
        assert_non_null(strstr(err.text, "--trained-length"));
        assert_int_equal(
            dpe_readings_make("c", text, strlen(text), "current", 3000, 0, &readings, &err),
            DPE_OK);
        assert_int_equal(readings.length, 3000);
        snprintf(json, sizeof json, i % 2 == 0 && i < 4 ? "" : "model_type \"%s\"", types[i]);
        assert_string_equal(readings.unknown, json);
        dpe_readings_free(&readings);
    }
}

/* Blocks of strange members are readings or refusals, never errors. */
static void strange_blocks(void **state)
{
    (void)state;
    static const char *const blocks[] = {
        "[]",
        "7",
        "{\"rope_type\": 3}",
        "{\"rope_type\": \"yarn\", \"factor\": \"4\"}",
        "{\"rope_type\": \"linear\", \"factor\": 0}",
        "{\"rope_type\": \"linear\", \"factor\": -2}",
        "{\"rope_type\": \"longrope\", \"short_factor\": [1], \"long_factor\": {}}",
        "{\"rope_type\": \"yarn\", \"factor\": 4, \"original_max_position_embeddings\": 0}",
        "{\"rope_type\": \"yarn\", \"factor\": 1e300, \"attention_factor\": -1}",
        "{\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4, \"high_freq_factor\": "
        "1}",
        "{\"full_attention\": {\"rope_type\": \"linear\", \"factor\": 2}, \"sliding_attention\": "
        "1}",
        "{\"partial_rotary_factor\": 0}",
        "{\"partial_rotary_factor\": 1e9}",
        "{\"rope_type\": \"dynamic\", \"factor\": 1e12}",
        "{\"rope_theta\": -1}",
        "{\"rope_type\": \"proportional\", \"partial_rotary_factor\": 0.25}",
    };
    static const char *const models[] = {"llama", "phi3", "ministral3", "gpt_oss", "no such model"};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        for (size_t k = 0; k < sizeof models / sizeof models[0]; k++) {
            char json[512];
            struct dpe_readings readings;
            snprintf(
                json, sizeof json,
                "{\"model_type\": \"%s\", \"head_dim\": 64, \"max_position_embeddings\": 4096, "
                "\"rope_scaling\": %s}",
                models[k], blocks[i]);
            make(json, 10000, &readings);
            for (int n = 0; n < readings.n; n++) {
                const struct dpe_reading *reading = &readings.of[n];
                assert_true(reading->refused[0] != '\0' || reading->factor > 0.0 ||
                            reading->factor < 0.0);
            }
            dpe_readings_free(&readings);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_the_runtimes),   cmocka_unit_test(as_llama_cpp_s_converter),
        cmocka_unit_test(growth_of_queries), cmocka_unit_test(yarn_and_dynamic_in_sglang),
        cmocka_unit_test(classes_fill_in),   cmocka_unit_test(classes_that_nobody_knows),
        cmocka_unit_test(agreement),         cmocka_unit_test(strange_blocks),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
