/**
 * @file tool_internal.h
 * What the files of engine/tool share.
 */
#ifndef DPE_TOOL_INTERNAL_H
#define DPE_TOOL_INTERNAL_H

#include "engine/tool/tool.h"

/** An option, and the parser whose table has it. */
struct dpe_listed_option {
    const struct argp_option *option; /**< borrowed */
    const struct argp *argp;
    int group; /**< as it is printed: 1, 2, …, then the group -1 of help; headers of the same group
                * come before its options */
};
struct dpe_option_list {
    struct dpe_listed_option *at; /**< owned by the caller */
    size_t n, capacity;
};
/** All options and headers of a parser and its children, sorted as help prints them. False when out
 *  of memory. */
bool dpe_tool_list_options(const struct argp *argp, struct dpe_option_list *list);
/** The option of the list that other programs call by the `n` bytes of `name`; NULL: none is known.
 */
const char *dpe_tool_foreign(const struct dpe_option_list *list, const char *name, size_t n);
/** Print the help of the tool that is parsed to stdout: what it does, an example and the options of
 *  DPE_BASIC, or all options and the whole text. A tool without such options always prints all. */
void dpe_tool_print_help(const struct argp_state *state, bool all);
/** Print the options for a shell's completion: a line for each, its word, a tab, and what it does. An
 *  option with an argument ends with '='; one with the choices "a|b" has a line for each of them. */
void dpe_tool_print_completion(const struct argp_state *state);
/** Text that may not be UTF-8, a path for example, with \xHH for each invalid byte; owned by the
 *  caller, NULL when out of memory. */
char *dpe_tool_show_bytes(const char *text);
/** dpe_tool_refuse for the program (or command) that is called `name`. */
void dpe_tool_refuse_as(const struct argp *argp, const char *name, const char *why)
    __attribute__((noreturn));

#endif
