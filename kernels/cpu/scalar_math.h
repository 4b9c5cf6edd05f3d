// Elementary functions in double, of our own: the bits of what is sampled and scored do not depend
// on the C library that happens to be there. Within 4 ulp, and finite for every finite argument.
#pragma once

namespace runnel::cpu {

// e^x; 0 below -708, e^709 above 709.
double exp_of(double x);

// Natural logarithm of a normal x > 0.
double log_of(double x);

// log(1 + x) for x in [0, 1].
double log1p_of(double x);

// log(1 + e^x), without overflow.
double softplus(double x);

// 1 / (1 + e^-x).
double sigmoid(double x);

}  // namespace runnel::cpu
