/**
 * @file cache.h
 * The keys and values of a text in a file, so that nobody reads the text again.
 *
 * The file is a safetensors one: `tokens`, the ids of the text, and for each layer L `keys.L` and
 * `values.L` [KV heads][tokens][numbers of a row], as the cache has them (before rotation; of int8
 * the codes of a row and its scale). __metadata__ names what decides them, and holds a sum of all
 * bytes. A layer with a state of another kind would have it as `state.L`. The file is written whole
 * or not at all. Of one that is read nothing is believed: its header has to be the one that would
 * be written here, its length what that says, its bytes have to give the sum.
 */
#ifndef DPE_CACHE_H
#define DPE_CACHE_H

#include "engine/base/base.h"
#include "engine/session/session.h"

/** Tokens of a chunk where nobody says it: a file of one tool is read by the other. */
enum { DPE_CACHE_CHUNK = 512 };

/** Write the first n ≥ 1 tokens, ids [n], of a branch. `owner`, in hex: whose the text is, ""
 * anybody's. *bytes: of the file. Errors of
 * dpe_session_move_saved and dpe_new_file_open. */
dpe_status dpe_cache_save(const char *path, struct dpe_session *session, int64_t branch,
                          const int32_t *ids, int64_t n, const char *owner, uint64_t *bytes,
                          struct dpe_error *err);
/** What a file says: how many tokens it has, and the digest of its plan. DPE_NO_INPUT: there is
 * none; DPE_BAD_DATA: it is another kind of file. */
dpe_status dpe_cache_look(const char *path, int64_t *n, char plan[65], struct dpe_error *err);
/** Read a file into a branch; its ids into `ids` [most], which are *n. DPE_MISMATCH with what
 * differs: it is of another model, plan, type, or of an owner that is not `owner`, or has more
 * tokens than `most`; DPE_BAD_DATA: it is damaged. The branch is empty then. */
dpe_status dpe_cache_restore(const char *path, struct dpe_session *session, int64_t branch,
                             const char *owner, int32_t *ids, int64_t most, int64_t *n,
                             uint64_t *bytes, struct dpe_error *err);

#endif
