/**
 * @file tool_internal.h
 * What the files of engine/tool share.
 */
#ifndef DPE_TOOL_INTERNAL_H
#define DPE_TOOL_INTERNAL_H

#include "engine/tool/tool.h"

/** Whether this is an entry of a table of options, not its end. */
static inline bool dpe_option_there(const struct dpe_option *option)
{
    return option != NULL && (option->key != 0 || option->name != NULL || option->doc != NULL);
}
/** -h, -v, completion: the last set of every tool. */
extern const struct dpe_option_set dpe_tool_help_option_set;
/** Text that may not be UTF-8, a path for example, with \xHH for each invalid byte; owned by the
 *  caller, NULL when out of memory. */
char *dpe_tool_show_bytes(const char *text);
/** Print the n bytes of a line and its end. Where the file is a terminal that is narrower, the line
 * is broken between words, and what follows begins at column `indent`. */
void dpe_tool_fit(FILE *file, const char *text, size_t n, int indent);
/** dpe_tool_refuse for the program (or command) that is called `name`. */
void dpe_tool_refuse_as(const char *name, const char *why) __attribute__((noreturn));
/** Print "NAME: WHY" on standard error, as JSON where that is asked for. */
void dpe_tool_fail_as(const char *name, const char *why);

#endif
