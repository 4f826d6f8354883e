#include "config/words.h"

#include <string.h>

static int find(const char *word, size_t length, const char *words) {
    for (int place = 0;; place++) {
        size_t next = strcspn(words, ",");
        if (next == length && memcmp(words, word, length) == 0)
            return place;
        if (!words[next])
            return -1;
        words += next + 1;
    }
}

int word_place(const char *word, const char *words) {
    return word != NULL ? find(word, strlen(word), words) : -1;
}

bool are_words(const char *text, const char *words) {
    for (;; text++) {
        size_t length = strcspn(text, ",");
        if (find(text, length, words) < 0)
            return false;
        text += length;
        if (!*text)
            return true;
    }
}
