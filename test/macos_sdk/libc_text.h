/* Characters and locales; included by libc.h. */
#ifndef FORGE_MACOS_LIBC_TEXT_H
#define FORGE_MACOS_LIBC_TEXT_H

#ifdef __cplusplus
extern "C" {
#endif

/* ---- characters ---- */

int isalnum(int c);
int isalpha(int c);
int isblank(int c);
int iscntrl(int c);
int isdigit(int c);
int isgraph(int c);
int islower(int c);
int isprint(int c);
int ispunct(int c);
int isspace(int c);
int isupper(int c);
int isxdigit(int c);
int tolower(int c);
int toupper(int c);
int isascii(int c);
#define _CTYPE_A 0x00000100L
#define _CTYPE_C 0x00000200L
#define _CTYPE_D 0x00000400L
#define _CTYPE_G 0x00000800L
#define _CTYPE_L 0x00001000L
#define _CTYPE_P 0x00002000L
#define _CTYPE_S 0x00004000L
#define _CTYPE_U 0x00008000L
#define _CTYPE_X 0x00010000L
#define _CTYPE_B 0x00020000L
#define _CTYPE_R 0x00040000L

/* ---- wide characters ---- */

struct tm;
int fwprintf(FILE *file, const wchar_t *format, ...);
int fwscanf(FILE *file, const wchar_t *format, ...);
int swprintf(wchar_t *text, size_t n, const wchar_t *format, ...);
int swscanf(const wchar_t *text, const wchar_t *format, ...);
int vfwprintf(FILE *file, const wchar_t *format, va_list list);
int vfwscanf(FILE *file, const wchar_t *format, va_list list);
int vswprintf(wchar_t *text, size_t n, const wchar_t *format, va_list list);
int vswscanf(const wchar_t *text, const wchar_t *format, va_list list);
int vwprintf(const wchar_t *format, va_list list);
int vwscanf(const wchar_t *format, va_list list);
int wprintf(const wchar_t *format, ...);
int wscanf(const wchar_t *format, ...);
wint_t fgetwc(FILE *file);
wchar_t *fgetws(wchar_t *text, int n, FILE *file);
wint_t fputwc(wchar_t c, FILE *file);
int fputws(const wchar_t *text, FILE *file);
int fwide(FILE *file, int mode);
wint_t getwc(FILE *file);
wint_t getwchar(void);
wint_t putwc(wchar_t c, FILE *file);
wint_t putwchar(wchar_t c);
wint_t ungetwc(wint_t c, FILE *file);
double wcstod(const wchar_t *text, wchar_t **end);
float wcstof(const wchar_t *text, wchar_t **end);
long double wcstold(const wchar_t *text, wchar_t **end);
long wcstol(const wchar_t *text, wchar_t **end, int base);
long long wcstoll(const wchar_t *text, wchar_t **end, int base);
unsigned long wcstoul(const wchar_t *text, wchar_t **end, int base);
unsigned long long wcstoull(const wchar_t *text, wchar_t **end, int base);
wchar_t *wcscpy(wchar_t *to, const wchar_t *from);
wchar_t *wcsncpy(wchar_t *to, const wchar_t *from, size_t n);
wchar_t *wcscat(wchar_t *to, const wchar_t *from);
wchar_t *wcsncat(wchar_t *to, const wchar_t *from, size_t n);
int wcscmp(const wchar_t *a, const wchar_t *b);
int wcscoll(const wchar_t *a, const wchar_t *b);
int wcsncmp(const wchar_t *a, const wchar_t *b, size_t n);
size_t wcsxfrm(wchar_t *to, const wchar_t *from, size_t n);
wchar_t *wcschr(const wchar_t *text, wchar_t c);
size_t wcscspn(const wchar_t *text, const wchar_t *set);
size_t wcslen(const wchar_t *text);
wchar_t *wcspbrk(const wchar_t *text, const wchar_t *set);
wchar_t *wcsrchr(const wchar_t *text, wchar_t c);
size_t wcsspn(const wchar_t *text, const wchar_t *set);
wchar_t *wcsstr(const wchar_t *text, const wchar_t *part);
wchar_t *wcstok(wchar_t *text, const wchar_t *set, wchar_t **state);
wchar_t *wmemchr(const wchar_t *at, wchar_t c, size_t n);
int wmemcmp(const wchar_t *a, const wchar_t *b, size_t n);
wchar_t *wmemcpy(wchar_t *to, const wchar_t *from, size_t n);
wchar_t *wmemmove(wchar_t *to, const wchar_t *from, size_t n);
wchar_t *wmemset(wchar_t *at, wchar_t c, size_t n);
size_t wcsftime(wchar_t *text, size_t n, const wchar_t *format, const struct tm *time);
wint_t btowc(int c);
int wctob(wint_t c);
int mbsinit(const mbstate_t *state);
size_t mbrlen(const char *text, size_t n, mbstate_t *state);
size_t mbrtowc(wchar_t *to, const char *text, size_t n, mbstate_t *state);
size_t wcrtomb(char *to, wchar_t c, mbstate_t *state);
size_t mbsrtowcs(wchar_t *to, const char **text, size_t n, mbstate_t *state);
size_t wcsrtombs(char *to, const wchar_t **text, size_t n, mbstate_t *state);
size_t mbsnrtowcs(wchar_t *to, const char **text, size_t bytes, size_t n, mbstate_t *state);
size_t wcsnrtombs(char *to, const wchar_t **text, size_t n, size_t bytes, mbstate_t *state);
int iswalnum(wint_t c);
int iswalpha(wint_t c);
int iswblank(wint_t c);
int iswcntrl(wint_t c);
int iswdigit(wint_t c);
int iswgraph(wint_t c);
int iswlower(wint_t c);
int iswprint(wint_t c);
int iswpunct(wint_t c);
int iswspace(wint_t c);
int iswupper(wint_t c);
int iswxdigit(wint_t c);
int iswctype(wint_t c, wctype_t type);
wctype_t wctype(const char *name);
wint_t towlower(wint_t c);
wint_t towupper(wint_t c);
wint_t towctrans(wint_t c, wctrans_t transformation);
wctrans_t wctrans(const char *name);

/* ---- locales ---- */

typedef struct _xlocale *locale_t;
struct lconv {
  char *decimal_point, *thousands_sep, *grouping, *int_curr_symbol, *currency_symbol,
      *mon_decimal_point, *mon_thousands_sep, *mon_grouping, *positive_sign, *negative_sign;
  char int_frac_digits, frac_digits, p_cs_precedes, p_sep_by_space, n_cs_precedes,
      n_sep_by_space, p_sign_posn, n_sign_posn, int_p_cs_precedes, int_n_cs_precedes,
      int_p_sep_by_space, int_n_sep_by_space, int_p_sign_posn, int_n_sign_posn;
};
#define LC_ALL 0
#define LC_COLLATE 1
#define LC_CTYPE 2
#define LC_MONETARY 3
#define LC_NUMERIC 4
#define LC_TIME 5
#define LC_MESSAGES 6
#define LC_COLLATE_MASK 1
#define LC_CTYPE_MASK 2
#define LC_MESSAGES_MASK 4
#define LC_MONETARY_MASK 8
#define LC_NUMERIC_MASK 16
#define LC_TIME_MASK 32
#define LC_ALL_MASK 63
#define LC_GLOBAL_LOCALE ((locale_t)-1)
#define NL_CAT_LOCALE 1
typedef struct __nl_cat_d *nl_catd;
nl_catd catopen(const char *name, int flag);
char *catgets(nl_catd catalogue, int set, int message, const char *otherwise);
int catclose(nl_catd catalogue);
struct lconv *localeconv(void);
struct lconv *localeconv_l(locale_t locale);
char *setlocale(int category, const char *name);
locale_t newlocale(int mask, const char *name, locale_t base);
locale_t uselocale(locale_t locale);
void freelocale(locale_t locale);
int ___mb_cur_max_l(locale_t locale);
#define MB_CUR_MAX_L(locale) (___mb_cur_max_l(locale))
int strcoll_l(const char *a, const char *b, locale_t locale);
size_t strxfrm_l(char *to, const char *from, size_t n, locale_t locale);
double strtod_l(const char *text, char **end, locale_t locale);
float strtof_l(const char *text, char **end, locale_t locale);
long double strtold_l(const char *text, char **end, locale_t locale);
long long strtoll_l(const char *text, char **end, int base, locale_t locale);
unsigned long long strtoull_l(const char *text, char **end, int base, locale_t locale);
int wcscoll_l(const wchar_t *a, const wchar_t *b, locale_t locale);
size_t wcsxfrm_l(wchar_t *to, const wchar_t *from, size_t n, locale_t locale);
wint_t btowc_l(int c, locale_t locale);
int wctob_l(wint_t c, locale_t locale);
size_t mbrlen_l(const char *text, size_t n, mbstate_t *state, locale_t locale);
size_t mbrtowc_l(wchar_t *to, const char *text, size_t n, mbstate_t *state, locale_t locale);
size_t wcrtomb_l(char *to, wchar_t c, mbstate_t *state, locale_t locale);
size_t mbsrtowcs_l(wchar_t *to, const char **text, size_t n, mbstate_t *state, locale_t locale);
size_t mbsnrtowcs_l(wchar_t *to, const char **text, size_t bytes, size_t n, mbstate_t *state,
                    locale_t locale);
size_t wcsnrtombs_l(char *to, const wchar_t **text, size_t n, size_t bytes, mbstate_t *state,
                    locale_t locale);
int mbtowc_l(wchar_t *to, const char *text, size_t n, locale_t locale);
int snprintf_l(char *text, size_t n, locale_t locale, const char *format, ...);
int asprintf_l(char **text, locale_t locale, const char *format, ...);
int sscanf_l(const char *text, locale_t locale, const char *format, ...);
int vsnprintf_l(char *text, size_t n, locale_t locale, const char *format, va_list list);
int vasprintf_l(char **text, locale_t locale, const char *format, va_list list);
int vsscanf_l(const char *text, locale_t locale, const char *format, va_list list);
int isalpha_l(int c, locale_t locale);
int isblank_l(int c, locale_t locale);
int iscntrl_l(int c, locale_t locale);
int isdigit_l(int c, locale_t locale);
int islower_l(int c, locale_t locale);
int isprint_l(int c, locale_t locale);
int ispunct_l(int c, locale_t locale);
int isspace_l(int c, locale_t locale);
int isupper_l(int c, locale_t locale);
int isxdigit_l(int c, locale_t locale);
int tolower_l(int c, locale_t locale);
int toupper_l(int c, locale_t locale);
int iswalpha_l(wint_t c, locale_t locale);
int iswblank_l(wint_t c, locale_t locale);
int iswcntrl_l(wint_t c, locale_t locale);
int iswdigit_l(wint_t c, locale_t locale);
int iswlower_l(wint_t c, locale_t locale);
int iswprint_l(wint_t c, locale_t locale);
int iswpunct_l(wint_t c, locale_t locale);
int iswspace_l(wint_t c, locale_t locale);
int iswupper_l(wint_t c, locale_t locale);
int iswxdigit_l(wint_t c, locale_t locale);
wint_t towlower_l(wint_t c, locale_t locale);
wint_t towupper_l(wint_t c, locale_t locale);

#ifdef __cplusplus
}
#endif

#endif
