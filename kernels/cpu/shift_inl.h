// Operations that use earlier inputs: the shift and the convolution of one row, in vector
// registers. Included inside an anonymous namespace by each isa_*.cc, after elementary_inl.h. No
// include guard and no includes: see isa.h.

void shift(const ShiftArgs& args, int begin, int end) {
  each_vector(end - begin, [&](int from, int n) {
    const int i = begin + from;
    Reg before = load_up_to(args.state + i, n);
    for (int64_t input = 0; input < args.inputs; ++input) {
      const Reg now = load_up_to(row_of(args.x, input) + i, n);
      const Reg change = sub(before, now);
      float* out = args.out + input * args.out_stride + i;
      for (int64_t mix = 0; mix < args.mixes; ++mix) {
        const Reg mu = load_up_to(row_of(args.mu, mix) + i, n);
        store_up_to(out + mix * args.width, multiply_add(change, mu, now), n);
      }
      before = now;
    }
    store_up_to(args.state + i, before, n);
  });
}

// Adds the bias, then the inputs from the oldest on. This is the only order of sums.
void convolve(const ConvolveArgs& args, int begin, int end) {
  const int held = args.taps - 1;
  each_vector(end - begin, [&](int from, int n) {
    const int i = begin + from;
    for (int64_t input = 0; input < args.inputs; ++input) {
      const Reg now = load_up_to(row_of(args.x, input) + i, n);
      Reg sum = args.bias == nullptr ? set1(0.0F) : load_up_to(args.bias + i, n);
      float* at = args.state + i;
      for (int64_t tap = 0; tap < held; ++tap, at += args.channels) {
        const Reg before = load_up_to(at, n);
        sum = multiply_add(load_up_to(row_of(args.weight, tap) + i, n), before, sum);
        store_up_to(at, tap + 1 < held ? load_up_to(at + args.channels, n) : now, n);
      }
      sum = multiply_add(load_up_to(row_of(args.weight, held) + i, n), now, sum);
      store_up_to(args.out + input * args.out_stride + i, activate(args.activation, sum), n);
    }
  });
}
