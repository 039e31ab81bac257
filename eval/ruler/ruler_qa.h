/**
 * @file ruler_qa.h
 * Questions about documents: SQuAD and HotpotQA files. Used inside eval/ only.
 */
#ifndef DPE_RULER_QA_H
#define DPE_RULER_QA_H

#include "engine/base/base.h"

struct dpe_qa_question {
    const char *text;
    size_t answers, n_answers; /**< first and number in dpe_qa.answers */
    size_t gold, n_gold;       /**< first and number in dpe_qa.gold: documents that must be there */
    size_t group;              /**< article, or SIZE_MAX: none */
};

struct dpe_qa {
    char *path;
    char hash[65];          /**< SHA-256 of the file */
    char *bytes;            /**< the file; strings below point into it or into `joined` */
    struct dpe_text joined; /**< HotpotQA: title and sentences put together */
    const char **documents; /**< [n_documents] distinct */
    size_t *group;          /**< [n_documents] article of each */
    double *cost;           /**< [n_documents] tokens, filled in by the user */
    size_t n_documents;
    const char **answers;
    size_t n_answers;
    size_t *gold;
    size_t n_gold;
    struct dpe_qa_question *questions;
    size_t n_questions;
};

/** Read a SQuAD file (1.1 or 2.0; unanswerable questions are left out) or a HotpotQA one (a list of
 *  questions with 10 paragraphs each). Errors name the file and what is missing where. Free with
 *  dpe_qa_free. */
dpe_status dpe_qa_squad(const char *path, struct dpe_qa *qa, struct dpe_error *err);
dpe_status dpe_qa_hotpot(const char *path, struct dpe_qa *qa, struct dpe_error *err);
void dpe_qa_free(struct dpe_qa *qa);

#endif
