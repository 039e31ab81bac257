/**
 * @file tool_load.h
 * Inside of dpe_tool: the time before main.
 */
#ifndef DPE_TOOL_LOAD_H
#define DPE_TOOL_LOAD_H

/** The libraries are loaded: what watches over that ends, at the latest before main. A program that
 *  calls this ends with 71 when a small `ulimit -v` keeps them from ever being so. */
void dpe_tool_loaded(void);

#endif
