/**
 * @file inside.h
 * The only way to the content of an HDF5 file, for all readers; not installed.
 *
 * HDF5 follows what a file says: links to objects of other files, datasets whose bytes lie in
 * another file (external storage) or are composed of other files' datasets (virtual ones). A
 * foreign table could thus put any file that its reader may read into an export, and its checksum
 * would not cover what is read. Nothing of it is followed here.
 */
#ifndef DPE_INSIDE_H
#define DPE_INSIDE_H

#include <stdbool.h>

#include <hdf5.h>

#include "engine/base/base.h"

/** Bytes of a chunk, at most: of what dpe writes, and therefore of what it reads. HDF5 unpacks
 * whole chunks, whose size the file only claims. */
enum { DPE_INSIDE_CHUNK = 1 << 16 };

/** What lies at a path of a file. */
enum dpe_inside {
    DPE_INSIDE_UNKNOWN, /**< HDF5 cannot tell: too little memory, damage */
    DPE_INSIDE_ABSENT,
    DPE_INSIDE_THERE,
    DPE_INSIDE_POINTS, /**< a part of the path is no hard link, or the elements are not in the file
                        */
    DPE_INSIDE_LARGE,  /**< more elements than there is memory for (trailer.h) */
    DPE_INSIDE_HOLLOW, /**< hundreds of megabytes of which the file stores next to nothing */
    DPE_INSIDE_CHUNKS, /**< a dataset in larger chunks, or through filters that dpe does not write
                          with */
    DPE_INSIDE_SHORT,  /**< elements of which bytes are neither stored nor filled */
};
/** What a message says after the path of an object that was not opened or read. */
const char *dpe_inside_text(enum dpe_inside found);

/** Begin with no messages of HDF5, and keep those of its next failure instead of printing them. It
 * forgets them itself at the next call that succeeds. */
void dpe_inside_listen(void);
/** What HDF5 said of its last failure in this thread, "" for nothing. */
const char *dpe_inside_words(void);
/** Whether that was for lack of memory. HDF5 has one kind of failure for all causes. */
bool dpe_inside_no_memory(void);

/** Look along a path ("/", "/table/mask"), and no further than its links. */
enum dpe_inside dpe_inside_look(hid_t file, const char *path);
/** Open the group or dataset at a path. Negative, with the reason in *found, when there is none
 * that lies in the file itself. Close it with dpe_inside_close. */
hid_t dpe_inside_open(hid_t file, const char *path, enum dpe_inside *found);
/** The class of a dataset's elements, and their bytes in the file; H5T_NO_CLASS, 0: not known. */
H5T_class_t dpe_inside_class(hid_t dataset, size_t *bytes);
/** Its dimensions; returns how many, negative where it has none that can be read. */
int dpe_inside_dims(hid_t dataset, hsize_t dims[H5S_MAX_RANK]);
/** Close what HDF5 has opened of a file, whatever it is; nothing when it is negative. Whether it
 * could. */
bool dpe_inside_close(hid_t id);
DPE_SCOPED_HANDLE(hid_t, dpe_inside_close)
/** The id if it is `right`; else it is closed, and −1. */
hid_t dpe_inside_keep(hid_t id, bool right);
/** Read all elements of a dataset that dpe_inside_open gave, converted to `type`. What each chunk
 * takes in the file is looked at first, and what it unpacks to: HDF5 has no other limit, and gives
 * the bytes of its memory for what is missing. DPE_INSIDE_THERE:
 * done. */
enum dpe_inside dpe_inside_read(hid_t dataset, hid_t type, hid_t transfer, void *data);
/** A scalar attribute of a group or dataset: a whole number, or a string of variable or fixed
 * length, owned. DPE_INSIDE_THERE, _ABSENT, _UNKNOWN (also for another type), _LARGE. */
enum dpe_inside dpe_inside_whole(hid_t object, const char *name, int64_t *value);
enum dpe_inside dpe_inside_string(hid_t object, const char *name, char **value);
/** Open a file for reading, whatever it holds; negative on failure. Check its trailer first
 * (trailer.h). */
hid_t dpe_inside_file(const char *path);

#endif
