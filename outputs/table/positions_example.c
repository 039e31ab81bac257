/* positions_example TABLE [LAYER HEAD [TOKENS]]: what a runtime does with a DPE table. Opens
 * TABLE.h5 or its JSON form, chooses the entry for a text of TOKENS (prompt and new ones together;
 * default: the largest), shows at which positions tokens are rotated in one head, and the cosines
 * and sines of a range of them. Uses the installed library alone. It is installed with a
 * CMakeLists.txt that builds it (example.cmake); or this command does:
 *
 *     cc positions_example.c $(pkg-config --cflags --libs dpe_table) -o positions_example
 */
#include <dpe_table.h>

#include <stdio.h>
#include <stdlib.h>

static void print_positions(const struct dpe_table *table, int64_t layer, int64_t head,
                            int64_t token)
{
    const struct dpe_table_values *values = dpe_table_values(table);
    printf("token %lld: near, every pair at %lld; its logits as a query times %.9g\n",
           (long long)token, (long long)token, dpe_table_query_scale(table, layer, token));
    for (int64_t g = 0; g < values->n_groups; g++) {
        int64_t pair = values->group_edge[g];
        printf("  far, group %lld (pair %lld, scale %g): query at %.0f, key at %.0f\n",
               (long long)g, (long long)pair, dpe_table_scale(table, layer, head, pair),
               dpe_table_position(table, layer, head, pair, DPE_TABLE_FAR, DPE_TABLE_QUERY, token),
               dpe_table_position(table, layer, head, pair, DPE_TABLE_FAR, DPE_TABLE_KEY, token));
    }
}

/* The tables that a kernel multiplies with: one for near keys, one for far ones, each for queries
 * and keys. Here the far keys of four tokens. */
static int print_rotations(const struct dpe_table *table, int64_t layer, int64_t head,
                           int64_t first)
{
    enum { COUNT = 4 };
    const struct dpe_table_values *values = dpe_table_values(table);
    size_t size = (size_t)(COUNT * values->n_pairs);
    float *cosines = malloc(size * sizeof *cosines);
    float *sines = malloc(size * sizeof *sines);
    if (cosines == NULL || sines == NULL) {
        free(cosines);
        free(sines);
        return 1;
    }
    dpe_table_cos_sin(table, layer, head, DPE_TABLE_FAR, DPE_TABLE_KEY, first, COUNT, cosines,
                      sines);
    for (int64_t i = 0; i < COUNT; i++) {
        const float *c = cosines + i * values->n_pairs;
        const float *s = sines + i * values->n_pairs;
        printf("far key %lld: pair 0 by (%.6f, %.6f), pair %lld by (%.6f, %.6f)\n",
               (long long)(first + i), (double)c[0], (double)s[0], (long long)(values->n_pairs - 1),
               (double)c[values->n_pairs - 1], (double)s[values->n_pairs - 1]);
    }
    free(cosines);
    free(sines);
    return 0;
}

/* One entry, for a text that it was chosen for. */
static int print_entry(const struct dpe_table *entry, int64_t layer, int64_t head)
{
    const struct dpe_table_values *values = dpe_table_values(entry);
    printf("%s model, trained for %lld tokens, table for %lld; nearer than %lld is near\n",
           values->model_type, (long long)values->trained_length, (long long)values->length,
           (long long)values->window);
    print_positions(entry, layer, head, values->length - 1);
    return print_rotations(entry, layer, head, values->length - 4);
}

int main(int argc, char **argv)
{
    if (argc != 2 && argc != 4 && argc != 5) {
        fprintf(stderr, "usage: %s TABLE [LAYER HEAD [TOKENS]]\n", argv[0]);
        return 64;
    }
    struct dpe_table *table = NULL;
    char why[DPE_TABLE_MESSAGE];
    const int opened = dpe_table_open(argv[1], &table, why);
    if (opened != DPE_TABLE_OK) {
        fprintf(stderr, "%s\n", why);
        return opened == DPE_TABLE_NO_FILE ? 66 : 65;
    }
    const struct dpe_table_values *values = dpe_table_values(table);
    int64_t layer = argc >= 4 ? strtoll(argv[2], NULL, 10) : 0;
    int64_t head = argc >= 4 ? strtoll(argv[3], NULL, 10) : 0;
    int64_t tokens = argc >= 5 ? strtoll(argv[4], NULL, 10) : values->length;
    const struct dpe_table *entry = dpe_table_choose(table, tokens);
    int code = 64;
    if (layer < 0 || layer >= values->n_layers || head < 0 || head >= values->n_heads) {
        fprintf(stderr, "the table has %lld layers of %lld heads\n", (long long)values->n_layers,
                (long long)values->n_heads);
    } else if (entry == NULL) {
        printf("%lld tokens are within the trained length, %lld: run the model unchanged\n",
               (long long)tokens, (long long)values->trained_length);
        code = 0;
    } else {
        code = print_entry(entry, layer, head);
    }
    dpe_table_close(table);
    return code;
}
