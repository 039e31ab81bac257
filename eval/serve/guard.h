/**
 * @file guard.h
 * What dpe-serve looks at before it reads a request: whether every proxy would read its head in the
 * same way, whether a page of another site sends it, and how much memory its body may come to. It
 * knows no HTTP library.
 */
#ifndef DPE_SERVE_GUARD_H
#define DPE_SERVE_GUARD_H

#include "eval/serve/engine/serve_engine.h"

/* ---------------------------------------------------------------------------------------- head */

/** What counts of the head of a request. Texts are borrowed; NULL: the request has no such header.
 */
struct dpe_guard_head {
    const char *method, *version; /**< "POST", "HTTP/1.1" */
    const char *host, *origin, *length, *encoding;
    const char *type; /**< of the content */
    const char *site; /**< Sec-Fetch-Site, which browsers alone send */
    int hosts, lengths, encodings;
    const char *wrong; /**< why a line of it may be read in two ways; NULL: none */
};
/** Take one header; `ends` tells whether its line ended with CR LF and had no NUL. */
void dpe_guard_add(struct dpe_guard_head *head, const char *name, const char *value, bool ends);
/** The head ends; `ends` tells whether its last line did so with CR LF. */
void dpe_guard_end(struct dpe_guard_head *head, bool ends);
/** 0, or the status of the refusal with its reason: 400 where others may read the request in
 * another way, 411 where a body has no length. The connection must end then: what follows may be no
 * request. */
unsigned dpe_guard_form(const struct dpe_guard_head *head, const char **why);

/** 0, or the status of the refusal with its reason: 403 for the name of another machine (a page
 * whose name was made to mean this address), or a page of another site; 415 for a content that a
 * page may send to any site without asking. `local`: the server listens on a loopback address, so
 * that names of this machine alone are hosts. */
unsigned dpe_guard_who(const struct dpe_serve_arguments *args, bool local,
                       const struct dpe_guard_head *head, const char **why);
/** The origin that an answer is for, when it is that of another site that may ask; else NULL. */
const char *dpe_guard_foreign(const struct dpe_serve_arguments *args,
                              const struct dpe_guard_head *head);
/** Whether a text is an address of this machine alone: 127.0.0.0/8 or ::1. */
bool dpe_guard_is_loopback(const char *address);

/* ---------------------------------------------------------------------------------------- body */

enum { DPE_GUARD_DEPTH = 128 /* of nested lists and objects */ };

/** Bytes that jansson may take for the n bytes of a JSON text, at most, with the text's copies of
 * its parser; for a text that is no JSON, of what comes before the mistake. UINT64_MAX: it nests
 * deeper than DPE_GUARD_DEPTH. */
uint64_t dpe_guard_cost(const char *bytes, size_t n);

#endif
