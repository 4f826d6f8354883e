/* The debugging mode of devices, which detailed exception dumps need. A device gets it when the process
 * sets it, if detailed dumps are switched on by then and no other process has it on this device. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Whether devices that are set from now on get the mode. */
void debugging_switch(bool on);

/* The process begins to use the device; only the first time counts, until it is reset. */
void debugging_set_device(uint32_t device);
void debugging_reset_device(uint32_t device);
void debugging_reset_all(void);

bool debugging_has(uint64_t device);
