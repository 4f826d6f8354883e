/* Words with single commas between them, such as "on,off". */
#pragma once

#include <stdbool.h>

/* Returns the place of the word in the list, or -1. The word may be NULL. */
int word_place(const char *word, const char *words);

/* Whether the text is a list of such words. */
bool are_words(const char *text, const char *words);
