/**
 * @file template.h
 * Chat templates: the part of Jinja that the templates of language models use.
 *
 * A template renders as `transformers` renders it (apply_chat_template): a sandboxed Jinja with
 * trim_blocks, lstrip_blocks, {% break %}, {% continue %} and {% generation %}, the functions
 * raise_exception and strftime_now, and a tojson that does not escape HTML. Reference: jinja2 3.1.
 * Left out is what chat templates do not use (groupby, batch, cycler, truncate, numbers as 0x1f,
 * …).
 *
 * What there is: {{ }}, {# #}, for (with if, else and recursive), if/elif/else, set (also of a
 * namespace's member, and as a block), macro, call, with, filter, raw; all expressions; the
 * filters, tests, functions and methods in the tables that template_parts.h declares (struct
 * known). Everything else is refused by name and line before anything is rendered, but within
 * {% if %}, and methods, varargs and kwargs of a macro, and a macro's members, where they run.
 * Names are ASCII; integers beyond 64 bits are kept, compared and written, and not calculated with
 * or formatted.
 */
#ifndef DPE_TEMPLATE_H
#define DPE_TEMPLATE_H

#include <jansson.h>
#include <time.h>

#include "engine/base/base.h"

struct dpe_template;

/** Parse n bytes of a template (at most 1 MiB). `where` names it in messages and is copied.
 *  Errors: DPE_BAD_DATA with the line: a mistake, or a construct that is not supported;
 *  DPE_NO_MEMORY. */
dpe_status dpe_template_parse(const char *where, const char *source, size_t n,
                              struct dpe_template **parsed, struct dpe_error *err);
/** Whether these letters stand anywhere in the template, as a role or a member that it reads must.
 */
bool dpe_template_spells(const struct dpe_template *parsed, const char *letters);
/** NULL is allowed. */
void dpe_template_free(struct dpe_template *parsed);
DPE_SCOPED_HANDLE(struct dpe_template *, dpe_template_free)

struct dpe_template_options {
    const struct tm *now; /**< what strftime_now formats; NULL: it is not defined */
    uint64_t most_steps;  /**< of the interpreter; 0: 10 million + 64 times the variables' bytes */
    uint64_t most_memory; /**< bytes, the output included; 0: 256 MiB + 64 times the variables */
};
/** Append what the template makes of the variables (a JSON object; borrowed) to `out`. Errors:
 * DPE_BAD_DATA: the template calls raise_exception (its message is in `err`), fails as it would in
 * Jinja, or exceeds a limit; DPE_NO_MEMORY. `out` is unchanged then. */
dpe_status dpe_template_render(const struct dpe_template *parsed, const json_t *variables,
                               const struct dpe_template_options *options, struct dpe_text *out,
                               struct dpe_error *err);

#endif
