/* POST /slots/N?action=save|restore|erase, as llama.cpp's server has it: what a slot holds goes
 * into a file of --slot-save-path, and comes from one. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "engine/system/folder.h"
#include "engine/system/platform.h"
#include "eval/cache/cache.h"
#include "eval/serve/serve_tool.h"

/* A name in the folder, and in no other. */
static bool is_name(const char *name, size_t n)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    return n > 0 && n <= 128 && name[0] != '.' && strspn(name, allowed) == n;
}

/* The plan under which a file goes on. */
static bool find_plan(const struct dpe_serve_world *world, struct dpe_serve_request *request,
                      struct dpe_serve_refusal *refusal)
{
    struct dpe_error err = {0};
    int64_t n = 0;
    char digest[65];
    dpe_status status = dpe_cache_look(request->move.path, &n, digest, &err);
    if (status == DPE_NO_INPUT) {
        return dpe_serve_refuse(refusal, 404, "filename", "there is no such file");
    }
    if (status != DPE_OK) {
        return dpe_serve_refuse_error(refusal, "filename", &err);
    }
    request->plan = dpe_serve_world_hold(world, digest);
    return request->plan >= 0 ||
           dpe_serve_refuse(refusal, 400, "filename",
                            "the file was saved under a position plan that this server has not");
}

bool dpe_serve_slot_parse(const struct dpe_serve_world *world, const char *path, const char *action,
                          const json_t *body, struct dpe_serve_request *request,
                          struct dpe_serve_refusal *refusal)
{
    static const char *const actions[] = {"save", "restore", "erase"};
    const char *number = path + sizeof "/slots/" - 1;
    const char *name = json_string_value(json_object_get(body, "filename"));
    *request = (struct dpe_serve_request){
        .kind = SERVE_SLOT, .created = (int64_t)time(NULL), .n_prompts = 1, .n = 1, .plan = -1};
    struct dpe_serve_move *move = &request->move;
    dpe_condition_init(&request->changed);
    snprintf(request->id, sizeof request->id, "slot-%.16s", number);
    while (move->action < 3 && (action == NULL || strcmp(action, actions[move->action]) != 0)) {
        move->action++;
    }
    if (world->args->slot_path == NULL) {
        return dpe_serve_refuse(refusal, 501, "", "this server has no --slot-save-path");
    }
    if (move->action == 3) {
        return dpe_serve_refuse(refusal, 400, "action", "action: expected save, restore or erase");
    }
    if (!dpe_serve_check_members(world, body, 1U << SERVE_SLOT, refusal)) {
        return false;
    }
    if (!dpe_scan_int(&number, 0, SERVE_MOST_SLOTS - 1, &move->slot) || *number != '\0') {
        return dpe_serve_refuse(refusal, 404, "", "there is no slot of that number");
    }
    if (move->action != SERVE_ERASE &&
        !is_name(name, json_string_length(json_object_get(body, "filename")))) {
        return dpe_serve_refuse(refusal, 400, "filename",
                                "filename: expected letters, digits, '.', '_' and '-', not '.' "
                                "first, 128 at most");
    }
    move->path = dpe_folder_join(world->args->slot_path, name != NULL ? name : "");
    request->prompts = dpe_alloc_zero(1, sizeof *request->prompts);
    request->sequences = dpe_alloc_zero(1, sizeof *request->sequences);
    if (move->path == NULL || request->prompts == NULL || request->sequences == NULL) {
        return dpe_serve_refuse(refusal, 503, "", "out of memory for this request");
    }
    if (move->action == SERVE_RESTORE && !find_plan(world, request, refusal)) {
        return false;
    }
    request->n_sequences = 1;
    request->sequences[0].request = request;
    request->sequences[0].prompt = request->prompts;
    request->sequences[0].plan = request->plan;
    return true;
}

json_t *dpe_serve_slot_answer(const struct dpe_serve_request *request)
{
    static const char *const names[][3] = {{"n_saved", "n_written", "save_ms"},
                                           {"n_restored", "n_read", "restore_ms"}};
    const struct dpe_serve_move *move = &request->move;
    if (move->action == SERVE_ERASE) {
        return json_pack("{s:I,s:I}", "id_slot", (json_int_t)move->slot, "n_erased",
                         (json_int_t)move->tokens);
    }
    const char *const *name = names[move->action];
    return json_pack("{s:I,s:s,s:I,s:I,s:{s:f}}", "id_slot", (json_int_t)move->slot, "filename",
                     strrchr(move->path, '/') + 1, name[0], (json_int_t)move->tokens, name[1],
                     (json_int_t)move->bytes, "timings", name[2], 1000.0 * move->seconds);
}
