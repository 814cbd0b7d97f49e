/* Mathematics; included by libc.h. */
#ifndef FORGE_MACOS_LIBC_MATH_H
#define FORGE_MACOS_LIBC_MATH_H

#ifdef __cplusplus
extern "C" {
#endif

/* ---- mathematics ---- */

typedef float float_t;
typedef double double_t;
#define FP_NAN 1
#define FP_INFINITE 2
#define FP_ZERO 3
#define FP_NORMAL 4
#define FP_SUBNORMAL 5
#define HUGE_VAL __builtin_huge_val()
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define FP_ILOGB0 (-2147483647 - 1)
#define FP_ILOGBNAN (-2147483647 - 1)

#define FORGE_MATH_1(name)        \
  double name(double x);          \
  float name##f(float x);         \
  long double name##l(long double x);
#define FORGE_MATH_2(name)              \
  double name(double x, double y);      \
  float name##f(float x, float y);      \
  long double name##l(long double x, long double y);
FORGE_MATH_1(acos)
FORGE_MATH_1(asin)
FORGE_MATH_1(atan)
FORGE_MATH_1(ceil)
FORGE_MATH_1(cos)
FORGE_MATH_1(cosh)
FORGE_MATH_1(exp)
FORGE_MATH_1(fabs)
FORGE_MATH_1(floor)
FORGE_MATH_1(log)
FORGE_MATH_1(log10)
FORGE_MATH_1(sin)
FORGE_MATH_1(sinh)
FORGE_MATH_1(sqrt)
FORGE_MATH_1(tan)
FORGE_MATH_1(tanh)
FORGE_MATH_1(acosh)
FORGE_MATH_1(asinh)
FORGE_MATH_1(atanh)
FORGE_MATH_1(cbrt)
FORGE_MATH_1(erf)
FORGE_MATH_1(erfc)
FORGE_MATH_1(exp2)
FORGE_MATH_1(expm1)
FORGE_MATH_1(lgamma)
FORGE_MATH_1(log1p)
FORGE_MATH_1(log2)
FORGE_MATH_1(logb)
FORGE_MATH_1(nearbyint)
FORGE_MATH_1(rint)
FORGE_MATH_1(round)
FORGE_MATH_1(tgamma)
FORGE_MATH_1(trunc)
FORGE_MATH_2(atan2)
FORGE_MATH_2(fmod)
FORGE_MATH_2(pow)
FORGE_MATH_2(copysign)
FORGE_MATH_2(fdim)
FORGE_MATH_2(fmax)
FORGE_MATH_2(fmin)
FORGE_MATH_2(hypot)
FORGE_MATH_2(nextafter)
FORGE_MATH_2(remainder)
double frexp(double x, int *exponent);
float frexpf(float x, int *exponent);
long double frexpl(long double x, int *exponent);
double ldexp(double x, int exponent);
float ldexpf(float x, int exponent);
long double ldexpl(long double x, int exponent);
double modf(double x, double *whole);
float modff(float x, float *whole);
long double modfl(long double x, long double *whole);
double fma(double x, double y, double z);
float fmaf(float x, float y, float z);
long double fmal(long double x, long double y, long double z);
int ilogb(double x);
int ilogbf(float x);
int ilogbl(long double x);
long lrint(double x);
long lrintf(float x);
long lrintl(long double x);
long lround(double x);
long lroundf(float x);
long lroundl(long double x);
long long llrint(double x);
long long llrintf(float x);
long long llrintl(long double x);
long long llround(double x);
long long llroundf(float x);
long long llroundl(long double x);
double nan(const char *tag);
float nanf(const char *tag);
long double nanl(const char *tag);
double nexttoward(double x, long double y);
float nexttowardf(float x, long double y);
long double nexttowardl(long double x, long double y);
double remquo(double x, double y, int *quotient);
float remquof(float x, float y, int *quotient);
long double remquol(long double x, long double y, int *quotient);
double scalbln(double x, long exponent);
float scalblnf(float x, long exponent);
long double scalblnl(long double x, long exponent);
double scalbn(double x, int exponent);
float scalbnf(float x, int exponent);
long double scalbnl(long double x, int exponent);
#undef FORGE_MATH_1
#undef FORGE_MATH_2

#ifdef __cplusplus
}
#endif

#endif
