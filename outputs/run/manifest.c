/* manifest.json: which run a journal folder belongs to. */
#include "outputs/run/manifest.h"
#include "engine/base/base.h"
#include "outputs/rows/rows.h"
#include "outputs/storage/storage.h"

#include <stdlib.h>
#include <string.h>

#include <jansson.h>

enum { MANIFEST_VERSION = 1, MANIFEST_MAX = 16 << 20 };

static json_t *manifest_json(const struct dpe_manifest *manifest, const char *hash)
{
    json_t *fields = json_array();
    for (size_t i = 0; fields != NULL && i < manifest->identity.n; i++) {
        const struct dpe_identity_field *field = &manifest->identity.fields[i];
        json_t *pair = json_pack("{s:s, s:s}", "name", field->name, "value", field->value);
        if (json_array_append_new(fields, pair) != 0) {
            json_decref(fields);
            return NULL;
        }
    }
    char created[32];
    dpe_time_text(created);
    return json_pack("{s:s, s:i, s:s, s:s, s:b, s:s, s:o}", "format", "dpe-journal", "version",
                     MANIFEST_VERSION, "software", dpe_version(), "created", created, "replace",
                     (int)manifest->replace, "identity_sha256", hash, "identity", fields);
}

dpe_status dpe_manifest_write(const char *path, const struct dpe_manifest *manifest,
                              struct dpe_error *err)
{
    char hash[65];
    dpe_status status = dpe_identity_hash(&manifest->identity, hash, err);
    if (status != DPE_OK) {
        return status;
    }
    json_t *json = manifest_json(manifest, hash);
    char *text = json == NULL ? NULL : json_dumps(json, JSON_INDENT(2));
    if (text == NULL) {
        status = dpe_fail(err, DPE_NO_MEMORY, "%s: out of memory", path);
    } else {
        status = dpe_replace_file(path, text, strlen(text), err);
    }
    free(text);
    json_decref(json);
    return status;
}

static dpe_status read_fields(const char *path, const json_t *json, struct dpe_identity *identity,
                              struct dpe_error *err)
{
    const json_t *fields = json_object_get(json, "identity");
    if (json_array_size(fields) == 0) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "%s: expected the fields of the run's identity, found none", path);
    }
    for (size_t i = 0; i < json_array_size(fields); i++) {
        const json_t *pair = json_array_get(fields, i);
        const char *name = json_string_value(json_object_get(pair, "name"));
        const char *value = json_string_value(json_object_get(pair, "value"));
        if (name == NULL || value == NULL) {
            return dpe_fail(err, DPE_BAD_DATA, "%s: field %zu of the identity is incomplete", path,
                            i);
        }
        dpe_status status = dpe_identity_add(identity, name, value, err);
        if (status != DPE_OK) {
            /* A name that is there twice is the file's mistake here, not ours. */
            return status == DPE_NO_MEMORY ? status
                                           : dpe_fail(err, DPE_BAD_DATA,
                                                      "%s: field %zu of the "
                                                      "identity is not valid",
                                                      path, i);
        }
    }
    char hash[65];
    dpe_status status = dpe_identity_hash(identity, hash, err);
    const char *stated = json_string_value(json_object_get(json, "identity_sha256"));
    if (status == DPE_OK && (stated == NULL || strcmp(stated, hash) != 0)) {
        status =
            dpe_fail(err, DPE_BAD_DATA,
                     "%s: the checksum of its identity does not match; the file is damaged", path);
    }
    return status;
}

dpe_status dpe_manifest_read(const char *path, struct dpe_manifest *manifest, struct dpe_error *err)
{
    *manifest = (struct dpe_manifest){0};
    char *bytes = NULL;
    size_t n = 0;
    dpe_status status = dpe_read_file(path, MANIFEST_MAX, &bytes, &n, err);
    if (status != DPE_OK) {
        return status;
    }
    json_error_t why;
    json_t *json = json_loadb(bytes, n, JSON_REJECT_DUPLICATES, &why);
    free(bytes);
    const char *format = json_string_value(json_object_get(json, "format"));
    if (json == NULL) {
        status = json_error_code(&why) == json_error_out_of_memory ? DPE_NO_MEMORY : DPE_BAD_DATA;
        status = dpe_fail(err, status, "%s: line %d: %s", path, why.line, why.text);
    } else if (format == NULL || strcmp(format, "dpe-journal") != 0) {
        status = dpe_fail(err, DPE_BAD_DATA,
                          "%s: expected the manifest of a journal, found other JSON", path);
    } else if (json_integer_value(json_object_get(json, "version")) != MANIFEST_VERSION) {
        manifest->other_version = true;
        status = dpe_fail(err, DPE_BAD_DATA,
                          "%s: expected version %d, found %lld; finish that run with the program "
                          "that began it",
                          path, MANIFEST_VERSION,
                          (long long)json_integer_value(json_object_get(json, "version")));
    } else {
        manifest->replace = json_is_true(json_object_get(json, "replace"));
        status = read_fields(path, json, &manifest->identity, err);
    }
    json_decref(json);
    if (status != DPE_OK) {
        dpe_identity_free(&manifest->identity);
    }
    return status;
}
