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

#include <hdf5.h>

/** What lies at a path of a file. */
enum dpe_inside {
    DPE_INSIDE_UNKNOWN, /**< HDF5 cannot tell: too little memory, damage */
    DPE_INSIDE_ABSENT,
    DPE_INSIDE_THERE,
    DPE_INSIDE_POINTS, /**< a part of the path is no hard link, or the elements are not in the file
                        */
};
/** What a message says of DPE_INSIDE_POINTS after the path. */
#define DPE_INSIDE_POINTS_TEXT                                                                     \
    "points to another file or object, which is not followed; expected the object itself"

/** Look along a path ("/", "/table/mask"), and no further than its links. */
enum dpe_inside dpe_inside_look(hid_t file, const char *path);
/** Open the group or dataset at a path. Negative, with the reason in *found, when there is none
 * that lies in the file itself. Close it with H5Oclose. */
hid_t dpe_inside_open(hid_t file, const char *path, enum dpe_inside *found);
/** Open a file for reading, whatever it holds; negative on failure. Check its trailer first
 * (trailer.h). */
hid_t dpe_inside_file(const char *path);

#endif
