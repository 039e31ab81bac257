/**
 * @file name_list.h
 * Many names in one message: "a, b, c and 12 more".
 */
#ifndef DPE_NAME_LIST_H
#define DPE_NAME_LIST_H

#include <stddef.h>

/** The names so far; zero-initialise. */
struct dpe_name_list {
    char text[640];
    size_t used, reported, n;
};
void dpe_name_list_add(struct dpe_name_list *list, const char *name);
/** The text, with the number of names that did not fit. */
const char *dpe_name_list_text(struct dpe_name_list *list);

#endif
