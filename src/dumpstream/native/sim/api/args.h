/* Dumps of the arguments of single operators, which go to disk only. */
#ifndef DSSIM_ARGS_H
#define DSSIM_ARGS_H

/* As if they had never been started. */
void args_reset(void);

#endif
