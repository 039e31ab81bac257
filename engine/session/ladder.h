/**
 * @file ladder.h
 * What tools need of the test of a device (dpe_session_create makes it): who is told, what is used,
 * and its child process.
 */
#ifndef DPE_LADDER_H
#define DPE_LADDER_H

#include "engine/base/base.h"

/** Who is told, in one line each time, that a device goes without a kernel that failed its test;
 * NULL: nobody. For the whole process. */
void dpe_device_set_notice(void (*notice)(const char *text));

/** The kernels by which models of this configuration run on a device, "attention wgmma, parts; …",
 * as tests found them in this process or before; "" where a device has one way for everything.
 * Nothing is tested. */
void dpe_device_kernels(const struct dpe_config *config, const char *device, char text[256]);

/** Test every way of a device for a model of this configuration, or (NULL) for the kinds of models
 * that there are, and write what came of it: for a person who does not have the device. *n_bad:
 * tests that were not right. Takes a minute or two, more where a kernel hangs. DPE_NO_DEVICE,
 * DPE_USAGE (a device without ways), DPE_NO_MEMORY. */
dpe_status dpe_device_report(const struct dpe_config *config, const char *device, int n_threads,
                             struct dpe_text *text, int *n_bad, struct dpe_error *err);

/** The one argument with which dpe-bench is started to test a device: it calls dpe_device_child,
 * which reads a request from standard input and writes the result; its exit status. */
#define DPE_DEVICE_CHILD "--device-test"
int dpe_device_child(void);

#endif
