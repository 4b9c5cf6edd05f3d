// Chooses the arguments and the kernel of a recurrence. The choice depends only on the shape and
// the layout of the states, and never on the batch.
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cuda/recur.h"
#include "kernels/cuda/rule_recur.h"

namespace runnel::cuda {

// Whether states can be read and written 16 bytes at a time.
template <typename Args>
bool has_aligned_states(const Args& args) {
  const auto at =
      reinterpret_cast<uintptr_t>(args.states.base) + static_cast<uintptr_t>(args.states.offset);
  return at % 16 == 0 && args.states.slot_bytes % 16 == 0 && args.dk % 4 == 0 && args.dv % 4 == 0;
}

template <typename Forms, typename Use>
void with_recur_kernel_of(const RecurArgs& args, const Use& use) {
  const bool aligned = has_aligned_states(args);
  if (aligned && Forms::Small::fits(args.dk, args.dv)) {
    use(typename Forms::Small());
  } else if (aligned && Forms::Medium::fits(args.dk, args.dv)) {
    use(typename Forms::Medium());
  } else if (aligned && Forms::Large::fits(args.dk, args.dv)) {
    use(typename Forms::Large());
  } else if (aligned) {
    use(typename Forms::Aligned());
  } else {
    use(typename Forms::Any());
  }
}

// Calls use(Kernel()) for a linear recurrence.
template <typename Use>
void with_recur_kernel(const RecurArgs& args, const Use& use) {
  if (args.form == StateForm::kReplay) {
    with_recur_kernel_of<Recur<StateForm::kReplay>>(args, use);
  } else {
    with_recur_kernel_of<Recur<StateForm::kPlain>>(args, use);
  }
}

// Calls use(Kernel()) for a recurrence of another rule.
template <Rule kRule, typename Use>
void with_rule_kernel(const RuleArgs& args, const Use& use) {
  using Forms = RuleRecur<kRule>;
  if (has_aligned_states(args) && Forms::Medium::fits(args.dk, args.dv)) {
    use(typename Forms::Medium());
  } else if (has_aligned_states(args) && Forms::Large::fits(args.dk, args.dv)) {
    use(typename Forms::Large());
  } else {
    use(typename Forms::Any());
  }
}

// `rows` must be readable by the device.
template <typename Terms>
RuleArgs rule_args(Rows rows, const Recurrence& recurrence, const Terms& terms,
                   const RecurrenceInputs& inputs, States states, View out) {
  const auto matrix = [](View view) { return InputMatrix{view.f32(), view.stride}; };
  RuleArgs args{};
  args.rows = rows;
  args.inputs = out.rows;
  args.q = matrix(inputs.q);
  args.k = matrix(inputs.k);
  args.v = matrix(inputs.v);
  args.decay = matrix(inputs.decay);
  args.heads = recurrence.heads;
  args.key_heads = recurrence.key_heads > 0 ? recurrence.key_heads : recurrence.heads;
  args.dk = recurrence.dk;
  args.dv = recurrence.dv;
  args.states = states;
  args.out = out.f32();
  args.out_stride = out.stride;
  if constexpr (Terms::kRule == Rule::kRwkv7) {
    args.rate = matrix(inputs.rate);
    args.first = matrix(inputs.first);
    args.mix = matrix(inputs.mix);
    args.eps = terms.eps;
    args.k_k = terms.k_k.f32();
    args.k_a = terms.k_a.f32();
    args.r_k = terms.r_k.f32();
    args.bonus = inputs.bonus.f32();
    args.bonus_stride = inputs.bonus.stride;
  } else {
    args.dt_rate = terms.dt_rate.f32();
    args.dt_bias = terms.dt_bias.f32();
    args.skip = terms.skip.f32();
    args.dt_least = terms.dt_least;
    args.dt_most = terms.dt_most;
  }
  return args;
}

}  // namespace runnel::cuda
