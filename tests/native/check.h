/* The whole test framework: a failed check prints where it is and ends the program. */
#pragma once

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: %s: not true: %s\n", __FILE__, __LINE__, __func__, #condition);          \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

/* For integers of any type. Prints both. */
#define CHECK_EQUAL(actual, expected)                                                                        \
    do {                                                                                                     \
        long long actual_ = (long long)(actual), expected_ = (long long)(expected);                          \
        if (actual_ != expected_) {                                                                          \
            fprintf(stderr, "%s:%d: %s: %s is %lld, not %lld\n", __FILE__, __LINE__, __func__, #actual,      \
                    actual_, expected_);                                                                     \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)
