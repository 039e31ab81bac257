/**
 * @file command_line.h
 * Command lines. A tool says in tables which options it has; getopt_long reads the line, and help,
 * completion and manual pages are printed from the same tables.
 */
#ifndef DPE_COMMAND_LINE_H
#define DPE_COMMAND_LINE_H

#include <stddef.h>

/** Flags of an option. */
enum dpe_option_flags {
    DPE_HIDDEN = 1,   /**< help and completion leave it out */
    DPE_OPTIONAL = 2, /**< its argument may be left out: --help[=all] */
    DPE_BASIC = 4,    /**< --help prints it; the others are printed by --help=all alone */
};
/** What the value of an option is. */
enum dpe_value_type {
    DPE_VALUE_OWN,     /**< the parser of the set takes it */
    DPE_VALUE_SWITCH,  /**< bool, true when the option is given; it has no argument */
    DPE_VALUE_TEXT,    /**< const char *, the argument as it is */
    DPE_VALUE_PATH,    /**< the same, not empty */
    DPE_VALUE_MODEL,   /**< the same, the folder of dpe_tool_model */
    DPE_VALUE_TABLE,   /**< the same, the file of dpe_tool_table */
    DPE_VALUE_COUNT,   /**< a whole number from `low` to `high`, in any type of 4 or 8 bytes */
    DPE_VALUE_TOKENS,  /**< the same, also as 16k or 1M */
    DPE_VALUE_REAL,    /**< double from `low` to `high` */
    DPE_VALUE_SECONDS, /**< double, above 0, or of at least a second where `low` is 1: 90, 30m, 2h
                        */
    DPE_VALUE_BYTES,   /**< uint64_t: 8G */
    DPE_VALUE_CHOICE,  /**< index of the word in `choices`: an enum, an int, or a bool where there
                          are  two */
};
/** What dpe_tool_parse reads and where in the set's input it keeps it. Write it by the macros
 * below.
 */
struct dpe_value {
    enum dpe_value_type type;
    size_t at, size; /**< of the member, in bytes */
    double low, high;
    const char *const *choices; /**< NULL ends them; NULL: the words of the option's `arg` */
};
#define DPE_VALUE_PLACE(kind, type, member, ...)                                                   \
    .value = {(kind), offsetof(type, member), sizeof(((type *)0)->member), __VA_ARGS__}
#define DPE_SWITCH(type, member) DPE_VALUE_PLACE(DPE_VALUE_SWITCH, type, member, 0.0)
#define DPE_TEXT(type, member)   DPE_VALUE_PLACE(DPE_VALUE_TEXT, type, member, 0.0)
#define DPE_PATH(type, member)   DPE_VALUE_PLACE(DPE_VALUE_PATH, type, member, 0.0)
#define DPE_MODEL(type, member)  DPE_VALUE_PLACE(DPE_VALUE_MODEL, type, member, 0.0)
#define DPE_TABLE(type, member)  DPE_VALUE_PLACE(DPE_VALUE_TABLE, type, member, 0.0)
#define DPE_BYTES(type, member)  DPE_VALUE_PLACE(DPE_VALUE_BYTES, type, member, 0.0)
#define DPE_COUNT(type, member, low, high)                                                         \
    DPE_VALUE_PLACE(DPE_VALUE_COUNT, type, member, (double)(low), (double)(high))
#define DPE_TOKENS(type, member, low, high)                                                        \
    DPE_VALUE_PLACE(DPE_VALUE_TOKENS, type, member, (double)(low), (double)(high))
#define DPE_REAL(type, member, low, high)                                                          \
    DPE_VALUE_PLACE(DPE_VALUE_REAL, type, member, (low), (high))
#define DPE_SECONDS(type, member, low) DPE_VALUE_PLACE(DPE_VALUE_SECONDS, type, member, (low))
/** `words`: the choices; NULL: those of the option's `arg`, "a|b|c". */
#define DPE_CHOICE(type, member, words)                                                            \
    DPE_VALUE_PLACE(DPE_VALUE_CHOICE, type, member, 0.0, 0.0, (words))
/** Behind one of them: the bool that says that the option was given. */
#define DPE_GIVEN(type, member) .given = offsetof(type, member)

/** An option, or the header of a group: `name` NULL, `key` 0 and the header as `doc`. */
struct dpe_option {
    const char *name; /**< without "--"; NULL: it has a letter alone */
    /** The letter, or else the number by which the set's parser and its `about` know the option; 0
     * where neither does. */
    int key;
    const char *arg; /**< what help calls its argument; "a|b" are all that there are. NULL: none */
    int flags;       /**< of dpe_option_flags */
    const char *doc; /**< what it does */
    int group;       /**< help prints group after group; 0: that of the option before */
    struct dpe_value value; /**< all zeros: the set's parser takes the option */
    size_t given;           /**< place in the input of a bool that becomes true as well; 0: none */
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
    /** Take the option `key` of DPE_VALUE_OWN, or an event. Ends the process by dpe_line_error when
     * a value is wrong. Returns 0 or DPE_LINE_UNKNOWN. */
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
