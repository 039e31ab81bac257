/* The open connections. A client may send its request byte by byte and never be silent: its time as
 * a whole is limited. */
#include <math.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "eval/serve/serve_tool.h"

struct dpe_serve_client {
    struct dpe_serve_clients *all;
    int socket;
    double since;
    struct dpe_serve_client *next, **before;
};

void dpe_serve_clients_since(struct MHD_Connection *connection, double since)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct dpe_serve_client *client = info != NULL ? info->socket_context : NULL;
    if (client != NULL) {
        pthread_mutex_lock(&client->all->lock);
        client->since = since;
        pthread_mutex_unlock(&client->all->lock);
    }
}

static struct dpe_serve_client *add(struct dpe_serve_clients *clients, int socket)
{
    struct dpe_serve_client *client = dpe_alloc_zero(1, sizeof *client);
    if (client != NULL) {
        *client = (struct dpe_serve_client){clients, socket, dpe_clock(), clients->first,
                                            &clients->first};
        if (client->next != NULL) {
            client->next->before = &client->next;
        }
        clients->first = client;
    }
    return client;
}

static void drop(struct dpe_serve_client *client)
{
    *client->before = client->next;
    if (client->next != NULL) {
        client->next->before = client->before;
    }
    free(client);
}

void dpe_serve_clients_notify(void *user, struct MHD_Connection *connection, void **own,
                              enum MHD_ConnectionNotificationCode what)
{
    struct dpe_serve_clients *clients = user;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    pthread_mutex_lock(&clients->lock);
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        *own = info != NULL ? add(clients, info->connect_fd) : NULL;
    } else if (*own != NULL) {
        drop(*own);
        *own = NULL;
    }
    pthread_mutex_unlock(&clients->lock);
}

void dpe_serve_clients_end_all(struct dpe_serve_clients *clients)
{
    dpe_serve_clients_end_slow(clients, -HUGE_VAL);
}

void dpe_serve_clients_end_slow(struct dpe_serve_clients *clients, double seconds)
{
    double first = dpe_clock() - seconds;
    pthread_mutex_lock(&clients->lock);
    for (struct dpe_serve_client *client = clients->first; client != NULL; client = client->next) {
        if (client->since < first) {
            shutdown(client->socket, SHUT_RDWR);
        }
    }
    pthread_mutex_unlock(&clients->lock);
}
