/* Many names in one message. */
#include "engine/model/files/name_list.h"

#include <stdio.h>
#include <string.h>

#include "engine/json/json_strict.h"

void dpe_name_list_add(struct dpe_name_list *list, const char *name)
{
    list->n++;
    char quoted[96];
    dpe_json_quote(quoted, name, strlen(name));
    size_t room = sizeof list->text - list->used;
    size_t need = strlen(quoted) + 2;
    /* The last 40 bytes are kept for the count of what did not fit. */
    if (need + 40 > room) {
        return;
    }
    list->used +=
        (size_t)snprintf(list->text + list->used, room, "%s%s", list->used > 0 ? ", " : "", quoted);
    list->reported++;
}

const char *dpe_name_list_text(struct dpe_name_list *list)
{
    if (list->reported < list->n) {
        snprintf(list->text + list->used, sizeof list->text - list->used, " and %zu more",
                 list->n - list->reported);
    }
    return list->text;
}
