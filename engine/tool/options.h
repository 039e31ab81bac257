/**
 * @file options.h
 * Command lines. A tool says in tables which options it has; getopt_long reads the line, and help,
 * completion and manual pages are printed from the same tables.
 */
#ifndef DPE_TOOL_OPTIONS_H
#define DPE_TOOL_OPTIONS_H

#include <stddef.h>

/** Flags of an option. */
enum dpe_option_flags {
    DPE_HIDDEN = 1,   /**< help and completion leave it out */
    DPE_OPTIONAL = 2, /**< its argument may be left out: --help[=all] */
    DPE_BASIC = 4,    /**< --help prints it; the others are printed by --help=all alone */
};
/** An option, or the header of a group: `name` NULL, `key` 0 and the header as `doc`. */
struct dpe_option {
    const char *name; /**< without "--"; NULL: it has a letter alone */
    int key;          /**< what its parser gets: the letter, or a number above those of letters */
    const char *arg;  /**< what help calls its argument; "a|b" are all that there are. NULL: none */
    int flags;        /**< of dpe_option_flags */
    const char *doc;  /**< what it does */
    int group;        /**< help prints group after group; 0: that of the option before */
};

/** What a parser gets besides keys of options. */
enum dpe_line_event {
    DPE_LINE_BEGIN = -16, /**< before all options: set the inputs of the children */
    DPE_LINE_WORD,        /**< `arg` is a word that is no option */
    DPE_LINE_NO_WORD,     /**< there was none, or the parser has taken none */
    DPE_LINE_END,         /**< after all; children come before the set that they are part of */
    DPE_LINE_AFTER,       /**< for `about`: the text after the options */
};
enum {
    DPE_LINE_UNKNOWN = 1,       /**< a parser's answer to a key or an event that it does not know */
    DPE_LINE_IN_ORDER = 1,      /**< flag of dpe_tool_parse: options end at the first word */
    DPE_LINE_MOST_SETS = 24,    /**< of a tool */
    DPE_LINE_MOST_OPTIONS = 200 /**< of a tool */
};

struct dpe_option_set;
/** A command line that is being read. */
struct dpe_command_line {
    void *input;         /**< what the parser fills */
    void **child_inputs; /**< at DPE_LINE_BEGIN: those of the children, NULL at first */
    const char *name;    /**< of the tool or its command, as errors begin */
    int argc;
    char **argv; /**< getopt_long puts the words behind the options */
    int next;    /**< at DPE_LINE_WORD: where the line goes on in argv; a parser may set it */
    char letter; /**< of an option that was typed as one, else 0 */
    /** The sets of the tool, each before its children; at last that of help. */
    struct dpe_line_set {
        const struct dpe_option_set *set;
        void *input;
        int parent; /**< -1: none */
        int child;  /**< which of the parent's */
        void *child_inputs[DPE_LINE_MOST_SETS];
    } sets[DPE_LINE_MOST_SETS];
    int n_sets;
};
/** Options that go together, with what takes their values: a whole tool, or a part that several
 * tools have. */
struct dpe_option_set {
    const struct dpe_option *options; /**< an entry of zeros ends them; NULL: none */
    /** Take the option `key`, or an event. Ends the process by dpe_line_error when a value is
     * wrong. Returns 0 or DPE_LINE_UNKNOWN. */
    int (*parser)(int key, char *arg, struct dpe_command_line *state);
    const char *args_doc; /**< words after the options in the usage, or NULL */
    const char *doc;      /**< what the tool does, and after '\v' the text after the options */
    const struct dpe_option_set *const *children; /**< NULL ends them; NULL: none */
    /** The text `text` of an option (or of DPE_LINE_AFTER) as help shall print it: itself, or made
     * in `room`. */
    const char *(*about)(int key, const char *text, const void *input, char *room, size_t size);
};

/** Print a usage error, "NAME: …" and where help is, and end the process with 64. */
void dpe_line_error(const struct dpe_command_line *state, const char *format, ...)
    __attribute__((format(printf, 2, 3), noreturn));
/** The same for an error that is none of usage: without help, and with this exit code. */
void dpe_line_failure(const struct dpe_command_line *state, int code, const char *why)
    __attribute__((noreturn));
/** Read the options and words of a command line into `input`. All tools have -h, --help (the
 * options of DPE_BASIC and the text's examples), --help=all, -v, --version, and the list that
 * shells complete from. An option that no table has is refused with the nearest one, before any
 * option is taken. `flags`: 0 or DPE_LINE_IN_ORDER. */
void dpe_tool_parse(const struct dpe_option_set *tool, int argc, char **argv, unsigned flags,
                    void *input);
/** How the option was typed: "-l", or `option` itself. Returns `text`. */
const char *dpe_tool_typed(const struct dpe_command_line *state, const char *option, char text[64]);

#endif
