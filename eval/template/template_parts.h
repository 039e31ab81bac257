/**
 * @file template_parts.h
 * What the files of the template room share: memory, nodes, values, the state of a rendering.
 *
 * A failure leaves the parse or the rendering at once (dpe_template_fail does not return): all that
 * they hold is in their arena, so that nothing in between has to release anything, or to ask.
 */
#ifndef DPE_TEMPLATE_PARTS_H
#define DPE_TEMPLATE_PARTS_H

#include <setjmp.h>

#include "eval/score/pytext.h"
#include "eval/template/template.h"

/** A name (struct dpe_span) for "%.*s" of a message, which shows 80 bytes of it. */
#define SHOWN(name) (int)dpe_utf8_check((name).s, (name).n < 80 ? (name).n : 80), (name).s

/* --------------------------------------------------------------------------------------- values */

enum kind {
    KIND_UNDEFINED,
    KIND_NONE,
    KIND_BOOL,
    KIND_INT,
    KIND_DIGITS, /**< an integer beyond 64 bits: its digits */
    KIND_FLOAT,
    KIND_STRING,
    KIND_LIST,
    KIND_TUPLE,
    KIND_DICT,
    KIND_ITERATOR,
    KIND_NAMESPACE,
    KIND_JOINER, /**< called for the first time it is empty, then its text */
    KIND_LOOP,
    KIND_MACRO,
    KIND_FUNCTION,
    KIND_METHOD,
};

struct value {
    enum kind kind;
    bool markup; /**< of a string: it passed "safe" or "e", and what is added to it is escaped */
    union {
        int64_t integer; /**< KIND_INT; KIND_BOOL: 0 or 1 */
        double real;
        struct dpe_span text; /**< KIND_STRING, KIND_DIGITS; of KIND_UNDEFINED: the missing name */
        struct items *items;  /**< KIND_LIST, KIND_TUPLE, KIND_JOINER */
        struct pairs *pairs;  /**< KIND_DICT, KIND_NAMESPACE */
        struct iterator *iterator;
        struct loop *loop;
        struct macro *macro;
        const struct known *function;
        struct bound *bound; /**< KIND_METHOD */
        const void *object;  /**< any of the pointers: two are the same or not */
    };
};
struct items {
    struct value *at;
    size_t n, capacity;
    bool used; /**< of a joiner: it was called */
};
struct pair {
    struct value key, value;
};
struct pairs {
    struct pair *at;
    size_t n, capacity;
};
/** What Python's generators, and the keys, values and items of a mapping are: something to loop
 * over without indices. */
struct iterator {
    struct items items;
    const char
        *name; /**< "dict_keys"; NULL: a generator, which is true, has no length and is read once */
};
struct scope {
    struct scope *outer;
    struct pairs variables;
};
struct loop {
    struct items over;
    size_t index; /**< from 0 */
    int64_t depth;
    const struct node *node;
    struct scope *outer; /**< around the loop */
};
struct macro {
    const struct node *node;
    struct scope *scope; /**< where it was defined */
};
struct bound {
    struct value self;
    const struct known *method;
};

/* ------------------------------------------------------------------------------------ rendering */

struct arena {
    struct arena_block *blocks;
    uint64_t used, most;
};
/** A text that grows within the arena. */
struct builder {
    char *bytes;
    size_t n, capacity;
};
enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };
/** The state of a rendering; a parse has one too, for its memory and for failing. */
struct render {
    const char *where;
    struct arena arena;
    struct dpe_error *err;
    dpe_status status; /**< of the failure */
    jmp_buf failed;    /**< where it goes */
    int line;          /**< of what is computed, for messages */
    int depth;
    uint64_t steps, most_steps;
    struct scope *scope;
    int64_t macros; /**< how many were made: each keeps the scope that it was made in */
    struct builder *out;
    struct dpe_text cased; /**< a text of dpe_py_case, which is the heap's */
    enum flow flow;
    const struct tm *now;
    /* The last text that an index was looked for in: its characters, and where one of them begins.
     */
    struct dpe_span walked;
    size_t walked_characters, walked_index, walked_byte;
};

/** Leave with "WHERE: line N: …" in `err`. It has the type of a value for the place of one. */
struct value dpe_template_fail(struct render *render, const char *format, ...)
    __attribute__((noreturn, format(printf, 2, 3)));
/** Leave with DPE_NO_MEMORY. */
void dpe_template_no_memory(struct render *render) __attribute__((noreturn));
/** Cleared memory, aligned for everything, which is freed with all other at the end. */
void *dpe_template_get(struct render *render, size_t n);
/** Counts n steps, and fails when there are too many of them, or the recursion is too deep. */
void dpe_template_step(struct render *render, uint64_t n);
/** Room for `more` elements of `size` bytes after n at *list (the address of a pointer); grows to
 * twice as many. */
void dpe_template_room(struct render *render, void *list, size_t n, size_t *capacity, size_t more,
                       size_t size);
void dpe_template_put(struct render *render, struct builder *to, const char *bytes, size_t n);
void dpe_template_put_span(struct render *render, struct builder *to, struct dpe_span text);
void dpe_template_put_often(struct render *render, struct builder *to, struct dpe_span text,
                            int64_t n);
void dpe_template_put_text(struct render *render, struct builder *to, const char *text);

/* ---------------------------------------------------------------------------------------- nodes */

enum op {
    OP_NOTHING,
    OP_OR,
    OP_AND,
    OP_EQUAL,
    OP_UNEQUAL,
    OP_LESS,
    OP_LESS_EQUAL,
    OP_GREATER,
    OP_GREATER_EQUAL,
    OP_IN,
    OP_NOT_IN,
    OP_ADD,
    OP_SUBTRACT,
    OP_CONCAT,
    OP_MULTIPLY,
    OP_DIVIDE,
    OP_FLOOR,
    OP_MODULO,
    OP_POWER,
    N_OPS,
};
/** What binds tighter comes later. */
enum level {
    LEVEL_OR,
    LEVEL_AND,
    LEVEL_NOT,
    LEVEL_COMPARE,
    LEVEL_SUM,
    LEVEL_CONCAT,
    LEVEL_PRODUCT,
    LEVEL_POWER,
    LEVEL_UNARY,
};
/** What stands between two operands, by enum op. */
struct between {
    const char *text;
    enum level level;
};
extern const struct between dpe_template_betweens[N_OPS];

/** What a node does: the value of an expression; a statement writes, and its value is nothing. */
typedef struct value runs(struct render *render, const struct node *node);
/** A part of a template. What a member holds is said where `run` is written. */
struct node {
    runs *run;
    enum op op;
    int line;
    struct dpe_span name, member;
    struct dpe_span keyword; /**< of an argument "keyword=…"; s NULL: by position */
    int stars;               /**< of an argument: those in front of it */
    struct node *a, *b, *c;
    struct node *list, *body, *other;
    struct node *next;
    struct value value;
    const struct known *known;
    bool calls;     /**< of a macro: its body reads caller, which is a variable there then */
    bool recursive; /**< of a loop: it may be called */
};

struct dpe_template {
    struct arena arena;
    const char *where;
    struct dpe_span source;
    struct node *body;
};

/* --------------------------------------------------------------------------------------- tokens */

enum token_kind {
    TOKEN_END,
    TOKEN_DATA,
    TOKEN_SIGN, /**< an operator, a bracket, or where a tag begins or ends: {{ }} {% %} */
    TOKEN_NAME,
    TOKEN_STRING, /**< unescaped */
    TOKEN_INT,
    TOKEN_FLOAT,
};
struct token {
    enum token_kind kind;
    int line;
    struct dpe_span text;
};
/** A template on its way to nodes. */
struct parse {
    struct render render;
    struct token *tokens; /**< [n_tokens], the last is TOKEN_END; the heap's */
    size_t n_tokens, at;
    int depth, in_loop, in_macro;
    bool calls; /**< caller was read in this macro */
    int soft;   /**< within {% if %}: what is not known is refused where it runs */
};
/** dpe_template_fail of a line. */
#define dpe_template_refuse(parse, at_line, ...)                                                   \
    ((parse)->render.line = (at_line), dpe_template_fail(&(parse)->render, __VA_ARGS__))
/** Cut the source into parse->tokens; what is returned has its lines end in \n, and a NUL after
 * it.
 */
struct dpe_span dpe_template_lex(struct parse *parse, const char *source, size_t n);
/** A node of the line of the next token. */
struct node *dpe_template_node(struct parse *parse, runs *run);
/** Reading tokens. */
const struct token *dpe_template_token(const struct parse *parse);
/** Whether a token, or the next one, is this name or sign; the next one is taken then. */
bool dpe_template_token_is(const struct token *token, const char *text);
bool dpe_template_is(const struct parse *parse, const char *text);
bool dpe_template_take(struct parse *parse, const char *text);
/** Take the name or sign that has to stand here. */
void dpe_template_expect(struct parse *parse, const char *text);
/** Refuse the next token, in place of which `what` was expected. */
void dpe_template_expected(struct parse *parse, const char *what) __attribute__((noreturn));
/** The name that has to stand here. */
struct dpe_span dpe_template_take_name(struct parse *parse);
/** One level deeper, of at most so many; parse->depth-- leaves it. */
void dpe_template_deeper(struct parse *parse, int line, int most, const char *what);
/** One part of a template. */
typedef struct node *parses(struct parse *parse);
/** An expression; one without "a if b" at its end; a primary, its sign, members and calls, filters
 * and tests. */
parses dpe_template_expression, dpe_template_plain, dpe_template_unary;
/** One, or a tuple of several with commas between them. */
struct node *dpe_template_tuple(struct parse *parse, parses *one);
/** Several with commas between them, and perhaps one at the end, up to `close`, which is taken. */
struct node *dpe_template_several(struct parse *parse, const char *close, parses *one);
/** A filter's name and arguments, applied to `inner`; filters "| name(…)" after `inner`. */
struct node *dpe_template_filter(struct parse *parse, struct node *inner);
struct node *dpe_template_filters(struct parse *parse, struct node *inner);
/** Statements up to a tag with one of these words, of which the sign alone is taken; `line` is
 * where the block began. */
struct node *dpe_template_body(struct parse *parse, const char *const *words, int line);
/** Whether a node is a call. */
bool dpe_template_is_call(const struct node *node);

/* -------------------------------------------------------------------------- making, looking at */

static inline struct value dpe_template_none(void)
{
    return (struct value){.kind = KIND_NONE};
}
static inline struct value dpe_template_bool(bool truth)
{
    return (struct value){.kind = KIND_BOOL, .integer = truth};
}
static inline struct value dpe_template_int(int64_t integer)
{
    return (struct value){.kind = KIND_INT, .integer = integer};
}
/** A truth as the integer that it is to Python; another value as it is. */
static inline struct value dpe_template_whole(struct value value)
{
    return value.kind == KIND_BOOL ? dpe_template_int(value.integer) : value;
}
static inline struct value dpe_template_float(double real)
{
    return (struct value){.kind = KIND_FLOAT, .real = real};
}
static inline struct value dpe_template_string(struct dpe_span text)
{
    return (struct value){.kind = KIND_STRING, .text = text};
}
static inline struct value dpe_template_text(const char *text)
{
    return dpe_template_string(dpe_span_of(text));
}
static inline struct value dpe_template_undefined(const char *name)
{
    return (struct value){.kind = KIND_UNDEFINED, .text = dpe_span_of(name)};
}
/** An undefined value without a name. */
static inline struct value dpe_template_nothing(void)
{
    return dpe_template_undefined("");
}
struct value dpe_template_built(const struct builder *built);
/** An integer as decimal digits (not NUL-terminated, kept): KIND_INT where it fits. */
struct value dpe_template_digits(struct render *render, const char *digits, size_t n);
struct value dpe_template_iterator(struct render *render, struct items items, const char *name);
/** A list (or tuple) without items, with room for n. */
struct value dpe_template_list(struct render *render, enum kind kind, size_t n);
/** A list (or tuple) of these items. */
struct value dpe_template_list_of(struct render *render, enum kind kind, const struct value *at,
                                  size_t n);
/** Add to a list that was made here. */
void dpe_template_add(struct render *render, struct value list, struct value item);
void dpe_template_add_all(struct render *render, struct value list, struct items from);
/** A mapping of these pairs; NULL: of none. */
struct value dpe_template_dict(struct render *render, enum kind kind, const struct pairs *pairs);
void dpe_template_dict_set(struct render *render, struct pairs *pairs, struct value key,
                           struct value value);
void dpe_template_dict_set_all(struct render *render, struct pairs *pairs,
                               const struct pairs *from);
/** NULL when it is not there. */
struct value *dpe_template_dict_get(struct render *render, const struct pairs *pairs,
                                    struct value key);
struct value dpe_template_of_json(struct render *render, const json_t *json, int depth);

const char *dpe_template_kind_name(struct value value);
bool dpe_template_truth(struct value value);
bool dpe_template_number(struct value value, double *number);
bool dpe_template_equal(struct render *render, struct value a, struct value b);
/** −1, 0, 1; fails when the two have no order. */
int dpe_template_compare(struct render *render, struct value a, struct value b);
/** The same of two texts, in which every pair has an order. */
int dpe_template_order(struct dpe_span a, struct dpe_span b);
/** Whether `a op b` holds, for the operators that compare. */
bool dpe_template_holds(struct render *render, enum op op, struct value a, struct value b);
bool dpe_template_contains(struct render *render, struct value whole, struct value part);
/** What a loop over the value sees; fails for what cannot be looped over. */
struct items dpe_template_items(struct render *render, struct value value);
/** The pairs of a mapping as tuples; fails for another value. */
struct items dpe_template_pairs(struct render *render, struct value of);
size_t dpe_template_characters(struct render *render, struct dpe_span text);
/** Where character `index` (at most the number of characters) begins. */
size_t dpe_template_offset(struct render *render, struct dpe_span text, size_t index);
/** The value as {{ }} writes it. */
void dpe_template_write(struct render *render, struct builder *to, struct value value);
struct dpe_span dpe_template_str(struct render *render, struct value value);
/** repr() of a value; of a float. */
struct dpe_span dpe_template_repr(struct render *render, struct value value);
void dpe_template_write_float(struct render *render, struct builder *to, double real);

struct value dpe_template_member(struct render *render, struct value of, struct dpe_span name);
struct value dpe_template_item(struct render *render, struct value of, struct value key);
/** of[start:stop:step], where a bound may be none. */
struct value dpe_template_slice(struct render *render, struct value of,
                                const struct value bounds[3]);
/** A member or item by a path: names and indices with dots between, or an integer. */
struct value dpe_template_attribute(struct render *render, struct value of, struct value path);
struct value dpe_template_binary(struct render *render, enum op op, struct value a, struct value b);
struct value dpe_template_eval(struct render *render, const struct node *node);

/* ------------------------------------------------------- calls, filters, tests, functions */

enum { MOST_ARGS = 64 };
/** Arguments as they are given, or bound: then at[i] is that of parameter i. */
struct args {
    struct value of;            /**< what stands before "|", "is" or "." */
    struct value at[MOST_ARGS]; /**< [n] by position */
    size_t n;
    struct pairs named;
    uint64_t absent; /**< bit i: parameter i was left out */
    unsigned how;    /**< that of the struct known that is called */
};
/** A filter, a test, a function or a method. A table of them ends with one without a name. */
struct known {
    const char *name;
    /** Its parameters, with commas between; NULL: the call reads its arguments itself. Each is
     *      [/] [~] [# or $] NAME [= [DEFAULT]]
     * '/': it has no name for callers; '~': none stands for an argument that is left out; '#': an
     * integer, '$': a text; '=': it may be left out, and is the default then: an integer, a text in
     * single quotes, or nothing. */
    const char *params;
    /** A test returns a truth. */
    struct value (*call)(struct render *render, struct args *args);
    unsigned how; /**< args->how: what the entries differ in that share a function */
};
extern const struct known dpe_template_text_filters[], dpe_template_list_filters[],
    dpe_template_format_filters[], dpe_template_tests[], dpe_template_functions[],
    dpe_template_string_methods[], dpe_template_item_methods[], dpe_template_dict_methods[],
    dpe_template_loop_methods[];
/** That of a name, or NULL. */
const struct known *dpe_template_find(const struct known *table, struct dpe_span name);
const struct known *dpe_template_find_filter(struct dpe_span name);
const struct known *dpe_template_find_test(struct dpe_span name);
/** The method of a value of that kind. */
const struct known *dpe_template_find_method(enum kind kind, struct dpe_span name);

/** The arguments of a call. */
void dpe_template_args(struct render *render, const struct node *list, struct args *args);
struct value dpe_template_call(struct render *render, struct value callee, struct args *args);
/** Call it with the arguments bound to its parameters; fails when one is missing, unknown, given
 * twice, too many or of another kind. `what` names it in messages: "filter". */
struct value dpe_template_apply(struct render *render, const char *what, const struct known *known,
                                struct value of, const struct args *args);
/** Bound argument i; NULL when it was left out. */
const struct value *dpe_template_arg(const struct args *args, size_t i);
/** An argument that has to be an integer, or a text. */
int64_t dpe_template_integer(struct render *render, struct value value, struct dpe_span name);
struct dpe_span dpe_template_letters(struct render *render, struct value value,
                                     struct dpe_span name);
/** What a body writes, in a scope of its own. */
struct value dpe_template_capture(struct render *render, const struct node *body);
/** loop(values) */
struct value dpe_template_call_loop(struct render *render, const struct loop *loop,
                                    const struct args *args);
/** The variable of the innermost scope that has it, or NULL. */
const struct value *dpe_template_lookup(struct render *render, struct dpe_span name);
struct scope *dpe_template_scope(struct render *render, struct scope *outer);

/** Texts as Python's methods make them. */
struct value dpe_template_case(struct render *render, struct dpe_span text,
                               enum dpe_py_letters letters);
/** The lines of a text, with their ends where `ends`. */
struct value dpe_template_lines(struct render *render, struct dpe_span text, bool ends);
/** Filters and methods. Their `how`: enum dpe_py_letters; sides. */
enum { STRIP_LEFT = 1, STRIP_RIGHT = 2, STRIP_MARKED = 4 /* what is marked stays so */ };
struct value dpe_template_do_case(struct render *render, struct args *args);
struct value dpe_template_do_strip(struct render *render, struct args *args);
struct value dpe_template_do_replace(struct render *render, struct args *args);
/** text.format(…), whose fields are read from the arguments. */
struct value dpe_template_format(struct render *render, struct args *args);
/** The text with HTML's characters as entities, marked; itself where it is marked already. */
struct value dpe_template_escape(struct render *render, struct value text);
/** text % value */
struct value dpe_template_percent(struct render *render, struct dpe_span text, struct value value);
/** `tojson`: json.dumps(value, ensure_ascii=False, indent=…, separators=…, sort_keys=…). */
struct value dpe_template_tojson(struct render *render, struct args *args);

#endif
