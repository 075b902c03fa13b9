// log, exp, pow, sine and cosine in double whose bits are the same on every CPU and system.
//
// The C library's differ between versions and instruction sets, and what they feed (RoPE angles) is
// computed by several ranks that must agree. Only +, -, *, / and explicit fma in a written order,
// all of them correctly rounded by IEEE 754. Relative error below 4e-16 * (1 + |y log x|) for pow,
// below 1e-15 for log and exp; absolute error below 5e-16 for sine and cosine.
#pragma once

namespace coxswain {

// x > 0, finite.
double exact_log(double x);
// Overflows to infinity and underflows to zero like exp.
double exact_exp_double(double x);
// base > 0, finite.
double exact_pow(double base, double exponent);
// |angle| < 2^31 (a position times a frequency).
void exact_sincos(double angle, double* sine, double* cosine);

}  // namespace coxswain
