/* What tables have besides /rows: root attributes, /identity, /run; of a DPE table its entries
 * (outputs/table/fields.h) and /model; and reading a table as the start of a run. */
#include "outputs/h5/h5.h"
#include "outputs/h5/h5_internal.h"
#include "outputs/storage/storage.h"
#include "outputs/table/fields.h"
#include "outputs/table/inside.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

static const char *const session_path = "/run/session";

/* What a result was made from, for people: what of its identity names an input, hashes cut to what
 * tells them apart. A tool may overwrite it. */
static void describe_source(const struct dpe_identity *identity, char source[256])
{
    static const char *const inputs[] = {"source", "model", "corpus", "detection", "profile"};
    size_t n = 0;
    source[0] = '\0';
    for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++) {
        const char *value = dpe_identity_get(identity, inputs[i]);
        if (value != NULL && n < 256) {
            bool hash = strlen(value) == 64 && strspn(value, "0123456789abcdef") == 64;
            int m = snprintf(source + n, 256 - n, "%s%s%s%.*s", n > 0 ? ", " : "",
                             i > 0 ? inputs[i] : "", i > 0 ? " " : "", hash ? 12 : 60, value);
            n += m > 0 ? (size_t)m : 0;
        }
    }
}

static void put_root(struct dpe_h5 *table, const struct dpe_h5_common *common)
{
    char source[256];
    describe_source(common->identity, source);
    const char *const texts[][2] = {
        {"schema_name", DPE_SCHEMA_NAME},
        {"schema_version", DPE_TABLE_SCHEMA},
        {"title", "Results of a DPE run"},
        {"source", source},
        {"software", "dpe"},
        {"software_version", DPE_VERSION},
        {"git", DPE_GIT},
        {"identity", common->hash},
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        dpe_h5_attr_text(table, "/", texts[i][0], texts[i][1]);
    }
    dpe_h5_attr_i64(table, "/", "complete", common->complete);
    dpe_h5_attr_i64(table, "/", "n_rows", (int64_t)common->n_rows);
    if (!common->complete && common->planned != 0) {
        dpe_h5_attr_i64(table, "/", "n_planned", common->planned);
        dpe_h5_attr_i64(table, "/", "n_missing", common->missing);
    }
}

static void put_identity(struct dpe_h5 *table, const struct dpe_identity *identity)
{
    static const char what[] = "the identity of a table";
    DPE_OWNED const char **names = dpe_h5_room(table, identity->n, sizeof *names, what);
    DPE_OWNED const char **values = dpe_h5_room(table, identity->n, sizeof *values, what);
    for (size_t i = 0; i < identity->n && names != NULL && values != NULL; i++) {
        names[i] = identity->fields[i].name;
        values[i] = identity->fields[i].value;
    }
    dpe_h5_put_list(table, "/identity/field", DPE_COL_STRING, names, identity->n, NULL,
                    "what decides a result", "1");
    dpe_h5_put_list(table, "/identity/value", DPE_COL_STRING, values, identity->n,
                    "/identity/field", "its value", "1");
}

/* ------------------------------------------------------------------------------------------ run */

static void put_session_name(struct dpe_h5 *table, const struct dpe_h5_common *common,
                             const char *name)
{
    DPE_OWNED char *path = dpe_join("/run/sessions/", name, "");
    DPE_OWNED const char **values = dpe_alloc(common->n_sessions, sizeof *values);
    if (path == NULL || values == NULL) {
        dpe_h5_stop(table, DPE_NO_MEMORY, "out of memory for /run");
    }
    for (size_t i = 0; i < common->n_sessions && values != NULL; i++) {
        values[i] = dpe_identity_get(&common->sessions[i], name);
    }
    dpe_h5_put_list(table, path, DPE_COL_STRING, values, common->n_sessions, session_path, name,
                    "1");
}

/* Each name that any session has, where it is met first. */
static void put_sessions(struct dpe_h5 *table, const struct dpe_h5_common *common)
{
    for (size_t i = 0; i < common->n_sessions; i++) {
        const struct dpe_identity *session = &common->sessions[i];
        for (size_t k = 0; k < session->n; k++) {
            const char *name = session->fields[k].name;
            bool earlier = false;
            for (size_t j = 0; !earlier && j < i; j++) {
                earlier = dpe_identity_get(&common->sessions[j], name) != NULL;
            }
            if (!earlier) {
                put_session_name(table, common, name);
            }
        }
    }
}

static void put_history(struct dpe_h5 *table, const struct dpe_h5_common *common)
{
    DPE_SCOPED(dpe_text_free) struct dpe_text history = {0};
    for (size_t i = 0; i < common->n_sessions; i++) {
        const char *command = dpe_identity_get(&common->sessions[i], "command");
        const char *started = dpe_identity_get(&common->sessions[i], "started");
        dpe_text_put(&history, "%s%s: %s", i > 0 ? "\n" : "", started == NULL ? "" : started,
                     command == NULL ? "" : command);
    }
    if (history.failed) {
        dpe_h5_stop(table, DPE_NO_MEMORY, "out of memory for the history");
    }
    dpe_h5_attr_text(table, "/run", "history", history.n > 0 ? history.bytes : "");
}

/* What has the same size in equal runs comes first: object addresses, which dimension scales hold,
 * then depend on nothing that differs. */
dpe_status dpe_h5_write_run(struct dpe_h5 *table, const struct dpe_h5_common *common,
                            struct dpe_error *err)
{
    char now[32];
    struct rusage usage;
    dpe_time_text(now);
    const char *created =
        common->n_sessions == 0 ? NULL : dpe_identity_get(&common->sessions[0], "started");
    dpe_h5_write_run_rows(table, common);
    dpe_h5_put_count(table, session_path, (int64_t)common->n_sessions,
                     "a process that worked on the run");
    dpe_h5_attr_text(table, "/run", "created", created == NULL ? now : created);
    dpe_h5_attr_text(table, "/run", "modified", now);
    if (getrusage(RUSAGE_SELF, &usage) == 0) {
        dpe_h5_attr_i64(table, "/run", "peak_memory_bytes", (int64_t)usage.ru_maxrss * 1024);
    }
    put_history(table, common);
    put_sessions(table, common);
    return dpe_h5_failed(table, err);
}

dpe_status dpe_h5_write_common(struct dpe_h5 *table, const struct dpe_h5_common *common,
                               struct dpe_error *err)
{
    put_root(table, common);
    put_identity(table, common->identity);
    dpe_h5_write_rows(table, common);
    return dpe_h5_failed(table, err);
}

/* ---------------------------------------------------------------------------- entries of tables */

static enum dpe_column_type column_of(const struct dpe_table_field *field)
{
    static const enum dpe_column_type types[] = {
        [DPE_FIELD_WHOLE] = DPE_COL_I64, [DPE_FIELD_REAL] = DPE_COL_F64,
        [DPE_FIELD_EDGE] = DPE_COL_I32,  [DPE_FIELD_FLAG] = DPE_COL_U8,
        [DPE_FIELD_MARKS] = DPE_COL_U8,  [DPE_FIELD_TEXT] = DPE_COL_STRING,
    };
    return field->whole_in_h5 ? DPE_COL_I64 : types[field->type];
}

/* The elements in the type of the column, where that is another than in memory; owned. */
static void *convert(struct dpe_h5 *table, const struct dpe_table_field *field, const void *data,
                     size_t n)
{
    int64_t *whole = dpe_h5_room(table, n, sizeof *whole, field->name);
    uint8_t *flags = (uint8_t *)whole;
    for (size_t i = 0; i < n && whole != NULL; i++) {
        double value = dpe_field_get(field, data, i);
        if (field->whole_in_h5) {
            whole[i] = (int64_t)value;
        } else {
            flags[i] = value != 0.0;
        }
    }
    return whole;
}

static void put_field(struct dpe_h5 *table, const char *folder, const struct dpe_table_field *field,
                      const struct dpe_table_values *values)
{
    static const char *const scales[DPE_AXES] = {
        [DPE_AXIS_GROUP] = "/group", [DPE_AXIS_EDGE] = "/edge", [DPE_AXIS_PAIR] = "/pair",
        [DPE_AXIS_LAYER] = "/layer", [DPE_AXIS_HEAD] = "/head",
    };
    const void *data = dpe_field_data(field, values);
    const bool flags = field->type == DPE_FIELD_FLAG || field->type == DPE_FIELD_MARKS;
    const bool converts = field->whole_in_h5 || field->type == DPE_FIELD_FLAG;
    DPE_OWNED void *converted =
        converts ? convert(table, field, data, dpe_field_count(field, values)) : NULL;
    char path[128], numbers[128];
    snprintf(path, sizeof path, "%s/%s", folder, field->name);
    struct dpe_column column = {.path = path,
                                .type = column_of(field),
                                .rank = dpe_field_rank(field),
                                .data = converts ? converted : data,
                                .long_name = field->long_name,
                                .units = field->units,
                                .flag_meanings = flags ? "no yes" : NULL};
    for (int i = 0; i < column.rank; i++) {
        column.dims[i] = dpe_field_extent(field->axes[i], values);
        column.scales[i] = scales[field->axes[i]];
    }
    /* Entries differ in their number of bands, so each has an axis of its own. */
    if (field->axes[0] == DPE_AXIS_BAND_NUMBER) {
        snprintf(numbers, sizeof numbers, "%s/band_number", folder);
        dpe_h5_put_count(table, numbers, column.dims[0], "number in the rows of bands");
        column.scales[0] = numbers;
    }
    dpe_h5_put(table, &column);
}

void dpe_h5_put_entry(struct dpe_h5 *table, const char *folder,
                      const struct dpe_table_values *values, unsigned parts)
{
    for (size_t i = 0; i < dpe_n_table_fields; i++) {
        const struct dpe_table_field *field = &dpe_table_fields[i];
        if (dpe_field_written(field, values, parts) && field->type == DPE_FIELD_TEXT) {
            dpe_h5_attr_text(table, folder, field->name, dpe_field_data(field, values));
        } else if (dpe_field_written(field, values, parts)) {
            put_field(table, folder, field, values);
        }
    }
}

void dpe_h5_put_conventions(struct dpe_h5 *table, const struct dpe_table_values *values,
                            unsigned parts)
{
    const bool frequencies = values->frequencies != 0;
    if (frequencies) {
        dpe_h5_attr_text(table, "/table", "moves", "frequencies");
    }
    for (size_t i = 0; i < dpe_n_table_conventions; i++) {
        const struct dpe_table_convention *convention = &dpe_table_conventions[i];
        const char *word = dpe_table_convention(convention, frequencies);
        const bool explained =
            convention->explained != NULL && !(convention->floors && frequencies);
        const bool floors = convention->floors && (parts >> DPE_PART_METHOD & 1) != 0;
        char text[256];
        snprintf(text, sizeof text, "%s%s%s", word, explained ? convention->explained : "",
                 floors ? ", without floor where unrounded is 1" : "");
        dpe_h5_attr_text(table, "/table", convention->name, text);
    }
}

void dpe_h5_put_model(struct dpe_h5 *table, const struct dpe_table_values *values)
{
    for (size_t i = 0; i < dpe_n_model_fields; i++) {
        const struct dpe_model_field *field = &dpe_model_fields[i];
        const void *at = (const char *)values + field->at;
        if (field->text) {
            dpe_h5_attr_text(table, "/model", field->attribute, *(const char *const *)at);
        } else {
            dpe_h5_attr_i64(table, "/model", field->attribute, *(const int64_t *)at);
        }
    }
}

/* -------------------------------------------------------------------------------------- reading */

void dpe_h5_content_free(struct dpe_h5_content *content)
{
    dpe_identity_free(&content->identity);
    dpe_identity_free(&content->plans);
    dpe_rows_free(content->rows, content->n_rows);
    for (size_t i = 0; i < content->n_sessions; i++) {
        dpe_identity_free(&content->sessions[i]);
    }
    free(content->sessions);
    *content = (struct dpe_h5_content){0};
}

/* Two datasets of strings as a list of names. Empty values are left out when `skip_empty`. */
static dpe_status get_list(struct dpe_h5 *table, const char *names_path, const char *values_path,
                           bool skip_empty, struct dpe_identity *list, struct dpe_error *err)
{
    DPE_SCOPED(dpe_strings_drop) struct dpe_strings names = {0};
    DPE_SCOPED(dpe_strings_drop) struct dpe_strings values = {0};
    DPE_TRY(dpe_h5_get_strings(table, names_path, &names.at, &names.n, err));
    DPE_TRY(dpe_h5_get_strings(table, values_path, &values.at, &values.n, err));
    if (names.n != values.n) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: %s: found %zu elements, %s has %zu", table->path,
                        names_path, names.n, values_path, values.n);
    }
    for (size_t i = 0; i < names.n; i++) {
        if (skip_empty && values.at[i][0] == '\0') {
            continue;
        }
        const dpe_status status = dpe_identity_add(list, names.at[i], values.at[i], err);
        if (status == DPE_INTERNAL) { /* a damaged or edited file, not our own mistake */
            return dpe_fail(err, DPE_BAD_DATA, "%s: %s: '%s' occurs twice or is empty", table->path,
                            names_path, names.at[i]);
        }
        DPE_TRY(status);
    }
    return DPE_OK;
}

dpe_status dpe_h5_get_identity(struct dpe_h5 *table, struct dpe_identity *identity,
                               struct dpe_error *err)
{
    return get_list(table, "/identity/field", "/identity/value", false, identity, err);
}

static dpe_status get_identity(struct dpe_h5 *table, struct dpe_h5_content *content,
                               struct dpe_error *err)
{
    char hex[65] = "";
    DPE_TRY(dpe_h5_get_identity(table, &content->identity, err));
    DPE_TRY(dpe_identity_hash(&content->identity, hex, err));
    return dpe_h5_check_hash(table, "/", "identity", hex, "/identity: its checksum does not match",
                             err);
}

/* What the sessions say under one name. */
static dpe_status get_session_name(struct dpe_h5 *table, const char *name,
                                   struct dpe_h5_content *content, struct dpe_error *err)
{
    DPE_SCOPED(dpe_strings_drop) struct dpe_strings values = {0};
    DPE_OWNED char *path = dpe_join("/run/sessions/", name, "");
    DPE_TRY(DPE_MADE(path, err, "out of memory for /run"));
    DPE_TRY(dpe_h5_get_strings(table, path, &values.at, &values.n, err));
    if (values.n != content->n_sessions) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: expected %zu elements, found %zu", path,
                        content->n_sessions, values.n);
    }
    for (size_t i = 0; i < values.n; i++) {
        if (values.at[i][0] != '\0') {
            DPE_TRY(dpe_identity_add(&content->sessions[i], name, values.at[i], err));
        }
    }
    return DPE_OK;
}

static dpe_status get_sessions(struct dpe_h5 *table, struct dpe_h5_content *content,
                               struct dpe_error *err)
{
    DPE_OWNED void *index = NULL;
    int rank = 0;
    int64_t dims[5] = {0};
    DPE_SCOPED(dpe_strings_drop) struct dpe_strings names = {0};
    DPE_TRY(dpe_h5_get(table, session_path, DPE_COL_I64, &index, &rank, dims, err));
    size_t n = rank == 1 ? (size_t)dims[0] : 0;
    DPE_TRY(DPE_NEW(&content->sessions, n, err, "out of memory for /run"));
    content->n_sessions = n;
    if (n > 0) {
        DPE_TRY(dpe_h5_list(table, "/run/sessions", &names.at, &names.n, err));
    }
    for (size_t i = 0; i < names.n; i++) {
        if (dpe_session_name_ok(names.at[i])) {
            DPE_TRY(get_session_name(table, names.at[i], content, err));
        }
    }
    return DPE_OK;
}

static dpe_status read_content(struct dpe_h5 *table, struct dpe_h5_content *content,
                               struct dpe_error *err)
{
    int64_t complete = 0, n_rows = -1;
    DPE_TRY(get_identity(table, content, err));
    DPE_TRY(dpe_h5_get_attr_i64(table, "/", "complete", &complete, err));
    DPE_TRY(dpe_h5_get_attr_i64(table, "/", "n_rows", &n_rows, err));
    content->complete = complete != 0;
    DPE_TRY(dpe_h5_get_rows(table, &content->rows, &content->n_rows, err));
    if (n_rows != (int64_t)content->n_rows) {
        return dpe_fail(err, DPE_BAD_DATA, "/rows: found %zu rows, expected the %lld of n_rows",
                        content->n_rows, (long long)n_rows);
    }
    DPE_TRY(get_list(table, "/plans/plan", "/plans/name", true, &content->plans, err));
    return get_sessions(table, content, err);
}

/* Whether a file that is not a DPE table is at least a whole HDF5 file. */
static bool opens_as_hdf5(const char *path)
{
    DPE_SCOPED(dpe_close_fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool whole = fd >= 0 && dpe_h5_check_trailer(fd, path, false, NULL) == DPE_OK;
    hid_t file = whole ? dpe_inside_file(path) : (hid_t)-1;
    if (file >= 0) {
        H5Fclose(file);
    }
    return file >= 0;
}

dpe_status dpe_h5_look(const char *path, enum dpe_h5_state *state, struct dpe_h5_content *content,
                       struct dpe_error *err)
{
    dpe_inside_listen();
    *content = (struct dpe_h5_content){0};
    struct stat info;
    if (stat(path, &info) != 0) {
        *state = DPE_H5_ABSENT;
        return errno == ENOENT ? DPE_OK : dpe_fail_errno(err, errno, path, "cannot be examined");
    }
    if (!S_ISREG(info.st_mode)) {
        return dpe_fail(
            err, DPE_CANNOT_CREATE,
            "%s: expected a table or no file, found something that is not a regular file", path);
    }
    struct dpe_error why = {0};
    DPE_SCOPED(dpe_h5_close_scoped) struct dpe_h5 *table = NULL;
    dpe_status status = dpe_h5_open(path, &table, &why);
    *state = DPE_H5_OURS;
    if (status == DPE_BAD_DATA) {
        *state = opens_as_hdf5(path) ? DPE_H5_FOREIGN : DPE_H5_DAMAGED;
    } else if (status == DPE_OK) {
        status = read_content(table, content, &why);
        *state = status == DPE_OK ? DPE_H5_OURS : DPE_H5_DAMAGED;
    }
    if (status != DPE_OK) {
        dpe_h5_content_free(content);
        snprintf(content->problem, sizeof content->problem, "%.500s", why.text);
    }
    bool hard = status == DPE_PERMISSION || status == DPE_NO_MEMORY || status == DPE_IO;
    return hard ? dpe_fail(err, status, "%s", why.text) : DPE_OK;
}
