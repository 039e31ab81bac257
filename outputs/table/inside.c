/* Objects of an HDF5 file that lie in the file itself. */
#include "outputs/table/inside.h"

#include <stdbool.h>
#include <string.h>

/* The link at a path whose parents are known to be groups of this file. */
static enum dpe_inside look_at_link(hid_t file, const char *path)
{
    H5L_info_t info;
    htri_t there = H5Lexists(file, path, H5P_DEFAULT);
    if (there <= 0) {
        return there < 0 ? DPE_INSIDE_UNKNOWN : DPE_INSIDE_ABSENT;
    }
    if (H5Lget_info(file, path, &info, H5P_DEFAULT) < 0) {
        return DPE_INSIDE_UNKNOWN;
    }
    return info.type == H5L_TYPE_HARD ? DPE_INSIDE_THERE : DPE_INSIDE_POINTS;
}

enum dpe_inside dpe_inside_look(hid_t file, const char *path)
{
    char prefix[1024];
    size_t n = strlen(path);
    if (path[0] != '/') {
        return DPE_INSIDE_ABSENT;
    }
    if (n >= sizeof prefix) {
        return DPE_INSIDE_UNKNOWN;
    }
    memcpy(prefix, path, n + 1);
    enum dpe_inside found = DPE_INSIDE_THERE;
    for (char *at = n > 1 ? prefix : NULL; found == DPE_INSIDE_THERE && at != NULL;) {
        at = strchr(at + 1, '/');
        if (at != NULL) {
            *at = '\0';
        }
        found = look_at_link(file, prefix);
        if (at != NULL) {
            *at = '/';
        }
    }
    return found;
}

/* Whether all elements of a dataset are in its file; groups have none. */
static enum dpe_inside look_at_storage(hid_t object)
{
    if (H5Iget_type(object) != H5I_DATASET) {
        return DPE_INSIDE_THERE;
    }
    hid_t created = H5Dget_create_plist(object);
    int files = created < 0 ? -1 : H5Pget_external_count(created);
    H5D_layout_t layout = created < 0 ? H5D_LAYOUT_ERROR : H5Pget_layout(created);
    if (created >= 0) {
        H5Pclose(created);
    }
    if (files < 0 || layout == H5D_LAYOUT_ERROR) {
        return DPE_INSIDE_UNKNOWN;
    }
    bool own = layout == H5D_COMPACT || layout == H5D_CONTIGUOUS || layout == H5D_CHUNKED;
    return files == 0 && own ? DPE_INSIDE_THERE : DPE_INSIDE_POINTS;
}

hid_t dpe_inside_open(hid_t file, const char *path, enum dpe_inside *found)
{
    *found = dpe_inside_look(file, path);
    hid_t object = *found == DPE_INSIDE_THERE ? H5Oopen(file, path, H5P_DEFAULT) : (hid_t)-1;
    if (*found != DPE_INSIDE_THERE) {
        return -1;
    }
    *found = object < 0 ? DPE_INSIDE_UNKNOWN : look_at_storage(object);
    if (object >= 0 && *found != DPE_INSIDE_THERE) {
        H5Oclose(object);
        object = -1;
    }
    return object;
}

hid_t dpe_inside_file(const char *path)
{
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    hid_t file = -1;
    /* Tables are only ever replaced, never changed: no lock is needed, and some clusters' file
     * systems refuse HDF5's. */
    if (access >= 0 && H5Pset_fclose_degree(access, H5F_CLOSE_STRONG) >= 0 &&
        H5Pset_file_locking(access, false, true) >= 0) {
        file = H5Fopen(path, H5F_ACC_RDONLY, access);
    }
    if (access >= 0) {
        H5Pclose(access);
    }
    return file;
}
