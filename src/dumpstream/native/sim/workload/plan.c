#include "workload/plan.h"

#include "config/selection.h"

/* Fills in the file at `place` among those with these tensors at these levels. If the
 * operator may change its inputs, they are in a file of their own, which is dumped before
 * the operator runs. */
static bool split(const struct dssim_workload *workload, uint32_t tensors, uint32_t levels, uint32_t place,
                  struct planned *file) {
    uint32_t inputs = tensors & workload_tensors(workload, IO_INPUTS);
    bool separate = workload->separate_io || file->op.is_call || op_is_collective(&file->op);
    uint32_t parts[2] = {separate ? inputs : tensors, separate ? tensors & ~inputs : 0};
    for (uint32_t level = LEVEL_OP; level <= LEVEL_KERNEL; level <<= 1) {
        for (uint32_t i = 0; i < 2; i++) {
            if (!(levels & level) || parts[i] == 0 || place-- > 0)
                continue;
            file->is_kernel = level == LEVEL_KERNEL;
            file->tensors = parts[i];
            return true;
        }
    }
    return false;
}

/* Only operators on the AI Core can overflow. The record comes after their tensors. */
static bool plan_overflow(const struct dssim_workload *workload, uint32_t place, struct planned *file) {
    uint64_t key = op_step_key(workload, &file->op, file->step);
    uint32_t faults = workload_faults(workload, key, file->op.place, file->step);
    uint32_t tensors = workload_tensors(workload, IO_INPUTS | IO_OUTPUTS);
    if (!(faults & 1u << FAULT_OVERFLOW) || file->op.is_call || op_is_data(&file->op) ||
        op_is_collective(&file->op))
        return false;
    file->statistics = 0;
    if (split(workload, tensors, LEVEL_OP, place, file))
        return true;
    file->is_opdebug = place > 0 && split(workload, tensors, LEVEL_OP, place - 1, file);
    return file->is_opdebug;
}

static bool plan_watch(const struct dump_config *config, const struct dssim_workload *workload,
                       uint32_t place, struct planned *file) {
    const struct op after = file->op;
    if (after.is_call || !selection_has_step(config, file->step) || !selection_triggers(config, &after))
        return false;
    file->tensors = workload_tensors(workload, IO_OUTPUTS);
    return selection_watched(config, workload, after.model, place, &file->op);
}

bool plan_file(const struct dump_config *config, const struct dssim_workload *workload, uint64_t step,
               uint64_t number, uint32_t place, struct planned *file) {
    uint32_t tensors;
    *file = (struct planned){
        .op = graph_op(workload, number),
        .step = step,
        .after = number,
        .place = place,
        .statistics = config->statistics,
    };
    if (!config_dumps(config))
        return false;
    if (config->overflow)
        return plan_overflow(workload, place, file);
    if (config->scene == SCENE_WATCHER)
        return plan_watch(config, workload, place, file);
    if (file->op.is_call) /* a call has no step */
        tensors = config->calls && config->ranges == 0 ? workload_tensors(workload, config->io) : 0;
    else
        tensors = selection_has_step(config, step) ? selection_tensors(config, workload, &file->op) : 0;
    return split(workload, tensors, config->levels, place, file);
}
