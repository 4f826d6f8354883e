/* Kernels for elements of any width: planes of bytes, halves, and zeros. */
#pragma once

#include "strips.h"

/* So many elements at a time stay in the nearest cache. */
#define DS_TILE 128u

static void halve(const uint8_t *elements, size_t count, uint8_t *restrict low, uint8_t *restrict high) {
    const any_4 *element = (const any_4 *)elements;
    any_2 *first = (any_2 *)low, *second = (any_2 *)high;
    for (size_t i = 0; i < count; i++) {
        first[i] = (uint16_t)element[i];
        second[i] = (uint16_t)(element[i] >> 16);
    }
}

static void join(const uint8_t *low, const uint8_t *high, size_t count, uint8_t *restrict elements) {
    const any_2 *first = (const any_2 *)low, *second = (const any_2 *)high;
    any_4 *element = (any_4 *)elements;
    for (size_t i = 0; i < count; i++)
        element[i] = first[i] | (uint32_t)second[i] << 16;
}

/* How many elements of a type are moved at once by their places; 0 if that is not possible. */
#ifdef DS_SHUFFLE_16
#define DS_VECTOR_OF(type) (sizeof(type) < 8 ? 16 / sizeof(type) : 0)
#else
#define DS_VECTOR_OF(type) 0
#define DS_SHUFFLE_16(bytes, places, out) ((void)(bytes), (void)(places), (void)(out))
#endif

/* Returns 16 bytes' worth of bytes that are 0 or 1 as bits. */
DS_INLINE unsigned bits_of(unsigned width, const uint8_t *is_kept) {
    uint64_t eight = 0;
    memcpy(&eight, is_kept, 16 / width);
    return (unsigned)(eight * 0x0102040810204080u >> 56);
}

/* Writes those elements of 16 bytes that are kept, and 16 bytes in all; returns how many there are. */
DS_INLINE size_t keep_some(unsigned width, const uint8_t *is_kept, const void *elements, void *kept) {
    const unsigned bits = bits_of(width, is_kept);
    DS_SHUFFLE_16(elements, width == 2 ? ds_places.keep_2[bits] : ds_places.keep_4[bits], kept);
    return ds_places.count[bits];
}

/* The reverse: writes 16 bytes of elements, 0 where none is kept; reads 16 bytes, of which it needs so many.
 */
DS_INLINE size_t spread_some(unsigned width, const uint8_t *is_kept, const void *kept, void *elements) {
    const unsigned bits = bits_of(width, is_kept);
    DS_SHUFFLE_16(kept, width == 2 ? ds_places.spread_2[bits] : ds_places.spread_4[bits], elements);
    return ds_places.count[bits];
}

/* The loops below are made for each type of element. `before` is the element before these, for
 * differences. */
#define DS_TYPED(type, any, name)                                                                            \
    DS_INLINE type moved_##name(type element, type before, unsigned flags) {                                 \
        if (flags & DS_DELTAS)                                                                               \
            return (type)(element - before);                                                                 \
        if (flags & DS_ROTATED)                                                                              \
            return (type)((type)(element << 1) | (type)(element >> (8 * sizeof(type) - 1)));                 \
        return element;                                                                                      \
    }                                                                                                        \
                                                                                                             \
    DS_INLINE void split_##name(const uint8_t *elements, size_t count, unsigned flags, size_t step,          \
                                uint8_t *restrict planes) {                                                  \
        const any *element = (const any *)elements;                                                          \
        for (size_t i = 0; i < count; i += DS_TILE) {                                                        \
            size_t some = count - i < DS_TILE ? count - i : DS_TILE;                                         \
            type tile[DS_TILE];                                                                              \
            tile[0] = moved_##name(element[i], i ? element[i - 1] : 0, flags);                               \
            for (size_t j = 1; j < some; j++)                                                                \
                tile[j] = moved_##name(element[i + j], element[i + j - 1], flags);                           \
            for (unsigned p = 0; p < sizeof(type); p++)                                                      \
                for (size_t j = 0; j < some; j++)                                                            \
                    planes[p * step + i + j] = (uint8_t)(tile[j] >> (8 * p));                                \
        }                                                                                                    \
    }                                                                                                        \
                                                                                                             \
    DS_INLINE void merge_##name(const uint8_t *const planes[8], size_t count, unsigned flags,                \
                                uint8_t *restrict elements) {                                                \
        any *element = (any *)elements;                                                                      \
        type before = 0;                                                                                     \
        for (size_t i = 0; i < count; i++) {                                                                 \
            type value = 0;                                                                                  \
            for (unsigned p = 0; p < sizeof(type); p++)                                                      \
                value = (type)(value | (type)planes[p][i] << (8 * p));                                       \
            if (flags & DS_DELTAS)                                                                           \
                value = before = (type)(before + value);                                                     \
            else if (flags & DS_ROTATED)                                                                     \
                value = (type)((type)(value >> 1) | (type)(value << (8 * sizeof(type) - 1)));                \
            element[i] = value;                                                                              \
        }                                                                                                    \
    }                                                                                                        \
                                                                                                             \
    DS_INLINE size_t drop_zeros_##name(const uint8_t *elements, size_t count, uint8_t *bitmap,               \
                                       uint8_t *kept) {                                                      \
        size_t found = 0;                                                                                    \
        for (size_t i = 0; i < count; i += DS_STRIP, bitmap += DS_ROW) {                                     \
            size_t some = count - i < DS_STRIP ? count - i : DS_STRIP;                                       \
            const any *element = (const any *)elements + i;                                                  \
            uint8_t is_kept[DS_STRIP];                                                                       \
            if (some < DS_STRIP)                                                                             \
                memset(is_kept, 0, sizeof is_kept);                                                          \
            for (size_t j = 0; j < some; j++)                                                                \
                is_kept[j] = element[j] != 0;                                                                \
            pack_1(is_kept, 0, bitmap);                                                                      \
            size_t j = 0;                                                                                    \
            if (DS_VECTOR_OF(type) && some == DS_STRIP)                                                      \
                for (; j < some; j += DS_VECTOR_OF(type))                                                    \
                    found += keep_some(sizeof(type), is_kept + j, element + j, (any *)kept + found);         \
            for (; j < some; j++) {                                                                          \
                ((any *)kept)[found] = element[j];                                                           \
                found += is_kept[j];                                                                         \
            }                                                                                                \
        }                                                                                                    \
        return found;                                                                                        \
    }                                                                                                        \
                                                                                                             \
    DS_INLINE size_t insert_zeros_##name(const uint8_t *bitmap, const uint8_t *kept, size_t most,            \
                                         size_t count, uint8_t *elements) {                                  \
        size_t found = 0;                                                                                    \
        for (size_t i = 0; i < count; i += DS_STRIP, bitmap += DS_ROW) {                                     \
            size_t some = count - i < DS_STRIP ? count - i : DS_STRIP;                                       \
            any *element = (any *)elements + i;                                                              \
            uint8_t is_kept[DS_STRIP];                                                                       \
            row packed = load_row(bitmap);                                                                   \
            for (unsigned k = 0; k < 8; k++)                                                                 \
                store_row(is_kept + DS_ROW * k, packed >> k & 1);                                            \
            /* An element is read also for a zero, so there must be one. */                                  \
            if (most - found > some) {                                                                       \
                size_t j = 0;                                                                                \
                if (DS_VECTOR_OF(type) && some == DS_STRIP)                                                  \
                    for (; j < some; j += DS_VECTOR_OF(type))                                                \
                        found +=                                                                             \
                            spread_some(sizeof(type), is_kept + j, (const any *)kept + found, element + j);  \
                for (; j < some; j++) {                                                                      \
                    element[j] = (type)(((const any *)kept)[found] & (type) - (type)is_kept[j]);             \
                    found += is_kept[j];                                                                     \
                }                                                                                            \
            } else {                                                                                         \
                for (size_t j = 0; j < some; j++) {                                                          \
                    if (is_kept[j] && found == most)                                                         \
                        return most + 1;                                                                     \
                    element[j] = is_kept[j] ? ((const any *)kept)[found++] : 0;                              \
                }                                                                                            \
            }                                                                                                \
        }                                                                                                    \
        return found;                                                                                        \
    }

DS_TYPED(uint16_t, any_2, 2)
DS_TYPED(uint32_t, any_4, 4)
DS_TYPED(uint64_t, any_8, 8)

/* The transformation is known to the compiler, so that it makes a loop for each. */
#define DS_EACH_WIDTH(call_2, call_4, call_8)                                                                \
    switch (width) {                                                                                         \
    case 2:                                                                                                  \
        return call_2;                                                                                       \
    case 4:                                                                                                  \
        return call_4;                                                                                       \
    default:                                                                                                 \
        return call_8;                                                                                       \
    }

#define DS_EACH_FLAG(name, ...)                                                                              \
    if (flags & DS_DELTAS)                                                                                   \
    name(__VA_ARGS__, DS_DELTAS) else if (flags & DS_ROTATED)                                                \
        name(__VA_ARGS__, DS_ROTATED) else name(__VA_ARGS__, 0)

static void split(const uint8_t *elements, size_t count, unsigned width, unsigned flags, size_t step,
                  uint8_t *planes) {
#define DS_SPLIT(unused, flag)                                                                               \
    DS_EACH_WIDTH(split_2(elements, count, flag, step, planes),                                              \
                  split_4(elements, count, flag, step, planes),                                              \
                  split_8(elements, count, flag, step, planes))
    DS_EACH_FLAG(DS_SPLIT, 0)
}

static void merge(const uint8_t *const planes[8], size_t count, unsigned width, unsigned flags,
                  uint8_t *elements) {
#define DS_MERGE(unused, flag)                                                                               \
    DS_EACH_WIDTH(merge_2(planes, count, flag, elements), merge_4(planes, count, flag, elements),            \
                  merge_8(planes, count, flag, elements))
    DS_EACH_FLAG(DS_MERGE, 0)
}

static size_t drop_zeros(const uint8_t *elements, size_t count, unsigned width, uint8_t *bitmap,
                         uint8_t *kept) {
    DS_EACH_WIDTH(drop_zeros_2(elements, count, bitmap, kept), drop_zeros_4(elements, count, bitmap, kept),
                  drop_zeros_8(elements, count, bitmap, kept))
}

static size_t insert_zeros(const uint8_t *bitmap, const uint8_t *kept, size_t most, size_t count,
                           unsigned width, uint8_t *elements){
    DS_EACH_WIDTH(insert_zeros_2(bitmap, kept, most, count, elements),
                  insert_zeros_4(bitmap, kept, most, count, elements),
                  insert_zeros_8(bitmap, kept, most, count, elements))}

#define DS_CODEC_KERNELS(set, crc)                                                                           \
    const struct ds_codec_kernels ds_codec_##set = {#set,  pack,  unpack,     halve,        join,            \
                                                    split, merge, drop_zeros, insert_zeros, crc}
