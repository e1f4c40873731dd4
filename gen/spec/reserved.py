"""Names that a kernel cannot have in any file: C++, the C library or CUDA have them.

An emitted function has C linkage: one that is called as a function of the C library takes the place
of that one in the whole program. nvcc warns of those that its headers declare.
"""

from __future__ import annotations

import re


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# C++'s, and what g++ adds where nobody asks for the standard alone.
_KEYWORDS = _words("""
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t
    char8_t class co_await co_return co_yield compl concept const const_cast consteval constexpr
    constinit continue decltype default delete do double dynamic_cast else enum explicit export
    extern false float for friend goto if inline int long mutable namespace new noexcept not not_eq
    nullptr operator or or_eq private protected public register reinterpret_cast requires return
    short signed sizeof static static_assert static_cast struct switch template this thread_local
    throw true try typedef typeid typename typeof union unsigned using virtual void volatile
    wchar_t while xor xor_eq
""")

# Of C, of POSIX, and of the C library that is usual on Linux. They have variants: see `_VARIANT`.
_LIBRARY = _words("""
    a64l abort abs access aligned_alloc arc4random arc4random_buf arc4random_uniform asctime
    asprintf at_quick_exit atexit atof atoi atol atoll bcmp bcopy bind brk bsearch btowc bzero
    c16rtomb c32rtomb call_once calloc canonicalize_file_name chdir chmod chown clearenv
    clearerr clock clock_adjtime clock_getcpuclockid clock_getres clock_gettime clock_nanosleep
    clock_settime close cnd_broadcast cnd_destroy cnd_init cnd_signal cnd_timedwait cnd_wait
    connect creat ctermid ctime cuserid difftime div dlopen dlsym dprintf drand48 dup dup2
    dysize ecvt erand48 execve exit explicit_bzero fclose fcloseall fcntl fcvt fdopen
    feclearexcept fegetenv fegetexceptflag fegetround feholdexcept feof feraiseexcept ferror
    fesetenv fesetexceptflag fesetround fetestexcept feupdateenv fflush ffs fgetc fgetpos fgets
    fgetwc fgetws fileno flockfile fmemopen fopen fopencookie fork fprintf fputc fputs fputwc
    fputws fread free freopen fscanf fseek fseeko fsetpos fstat ftell ftello ftruncate
    ftrylockfile funlockfile fwide fwprintf fwrite fwscanf gcvt getc getchar getdate getdelim
    getenv getline getloadavg getpid getpt getsubopt getw getwc getwchar gmtime grantpt imaxabs
    imaxdiv index initstate ioctl isalnum isalpha isblank iscntrl isctype isdigit isgraph
    islower isprint ispunct isspace isupper iswalnum iswalpha iswblank iswcntrl iswctype
    iswdigit iswgraph iswlower iswprint iswpunct iswspace iswupper iswxdigit isxdigit jrand48
    kill l64a labs lcong48 ldiv link listen llabs lldiv localeconv localtime longjmp lrand48
    lseek lstat malloc mblen mbrlen mbrtoc16 mbrtoc32 mbrtowc mbsinit mbsrtowcs mbstowcs mbtowc
    memccpy memchr memcmp memcpy memfrob memmem memmove mempcpy memset mkdir mkdtemp mkostemp
    mkostemps mkstemp mkstemps mktemp mktime mlock mmap mprotect mrand48 mtx_destroy mtx_init
    mtx_lock mtx_timedlock mtx_trylock mtx_unlock munmap nanosleep nrand48 obstack_printf
    obstack_vprintf on_exit open open_memstream pause pclose perror pipe poll popen
    posix_memalign posix_openpt pread printf pselect ptsname putc putchar putenv puts putw putwc
    putwchar pwrite qecvt qfcvt qgcvt qsort quick_exit raise rand random read readdir readlink
    realloc reallocarray realpath recv remove rename renameat renameat2 rewind rindex rmdir
    rpmatch sbrk scanf secure_getenv seed48 select send setbuf setbuffer setenv setjmp
    setlinebuf setlocale setstate setvbuf shutdown sigabbrev_np sigdescr_np signal sleep
    snprintf socket sprintf srand srand48 srandom sscanf stat stpcpy stpncpy strcasecmp strcat
    strchr strcmp strcoll strcpy strcspn strdup strerror strerrordesc_np strerrorname_np
    strfromd strfromf strfroml strfry strftime strlen strncasecmp strncat strncmp strncpy
    strndup strnlen strpbrk strptime strrchr strsep strsignal strspn strstr strtod strtof
    strtoimax strtok strtol strtold strtoll strtoq strtoul strtoull strtoumax strtouq strverscmp
    strxfrm swprintf swscanf symlink sync syscall system tempnam thrd_create thrd_current
    thrd_detach thrd_equal thrd_exit thrd_join thrd_sleep thrd_yield time timegm timelocal
    timer_create timer_delete timer_getoverrun timer_gettime timer_settime timespec_get
    timespec_getres tmpfile tmpnam tolower toupper towctrans towlower towupper truncate
    tss_create tss_delete tss_get tss_set tzset umask ungetc ungetwc unlink unlockpt unsetenv
    usleep valloc vasprintf vdprintf vfork vfprintf vfscanf vfwprintf vfwscanf vprintf vscanf
    vsnprintf vsprintf vsscanf vswprintf vswscanf vwprintf vwscanf wait waitpid wcrtomb wcscat
    wcschr wcscmp wcscoll wcscpy wcscspn wcsftime wcslen wcsncat wcsncmp wcsncpy wcspbrk wcsrchr
    wcsrtombs wcsspn wcsstr wcstod wcstof wcstoimax wcstok wcstol wcstold wcstoll wcstombs
    wcstoul wcstoull wcstoumax wcsxfrm wctob wctomb wctrans wctype wmemchr wmemcmp wmemcpy
    wmemmove wmemset wprintf write wscanf
""")
_VARIANT = re.compile(r"(_r|_l|_unlocked|64)$")

# Of C's and CUDA's mathematics: each also for other types.
_MATHEMATICS = _words("""
    acos acosh asin asinh atan atan2 atanh cabs cacos cacosh canonicalize carg casin casinh
    catan catanh cbrt ccos ccosh ceil cexp cimag clog conj copysign cos cosh cospi cpow cproj
    creal csin csinh csqrt ctan ctanh cyl_bessel_i0 cyl_bessel_i1 daddl ddivl dfmal dmull drem
    dsqrtl dsubl erf erfc erfcinv erfcx erfinv exp exp10 exp2 expm1 fabs fadd fdim fdiv fdivide
    ffma finite floor fma fmax fmaximum fmaximum_mag fmaximum_mag_num fmaximum_num fmaxmag fmin
    fminimum fminimum_mag fminimum_mag_num fminimum_num fminmag fmod fmul frexp fromfp fromfpx
    fsqrt fsub gamma getpayload hypot ilogb isinff isinfl isnanf isnanl j0 j1 jn ldexp lgamma
    lgamma_r lgammaf_r lgammal_r llogb llrint llround log log10 log1p log2 logb lrint lround
    modf nan nearbyint nextafter nextdown nexttoward nextup norm norm3d norm4d normcdf
    normcdfinv pow rcbrt remainder remquo rhypot rint rnorm rnorm3d rnorm4d round roundeven
    rsqrt scalb scalbln scalbn setpayload setpayloadsig significand sin sincos sincospi sinh
    sinpi sqrt tan tanh tgamma totalorder totalordermag trunc ufromfp ufromfpx y0 y1 yn
""")
_TYPE = re.compile(r"(f|l|f32x?|f64x?)$")

_TYPES = re.compile(r"(size|ssize|ptrdiff|time|clock|wint|u?int(8|16|32|64|max|ptr))_t")

_MACROS = _words("""
    BUFSIZ EOF FILENAME_MAX FOPEN_MAX INFINITY MAXFLOAT NAN NULL NZERO RAND_MAX TMP_MAX alloca
    assert errno isascii linux math_errhandling offsetof stderr stdin stdout strdupa strndupa
    toascii unix va_arg va_copy va_end va_start WARP_SZ
""")
_MACRO_FAMILIES = re.compile(
    r"M_[A-Z0-9_]+[a-z0-9]*|[A-Z]+_(MAX|MIN|WIDTH|BIT)|(CLOCK|CLOCKS|EXIT|FP|HUGE|NV|SEEK|TIME)_\w+"
    r"|(be|le)(16|32|64)toh|hto(be|le)(16|32|64)|is\w+_l"
)

# What all device code has, and what the names of CUDA's interfaces begin with.
_CUDA = _words("""
    blockDim blockIdx clock64 cuda dim3 gridDim llmax llmin max min nvcuda threadIdx ullmax ullmin
    umax umin warpSize
""")
_CUDA_FAMILIES = re.compile(
    r"(cuda|CUDA|CU|cu|nv|NV)_?[A-Z]\w*|atomic[A-Z]\w*"
    r"|(u?(char|short|int|long|longlong)|float|double)[1-4]"
)


def taken(symbol: str) -> str:
    """What a name is already, such as "a keyword of C++"; empty where it is free."""
    if symbol.startswith("_"):
        return "reserved, as all names that begin with _ are"
    if symbol in _KEYWORDS:
        return "a keyword of C++"
    if symbol in ("main", "std"):
        return "reserved by C++"
    if symbol in _CUDA or _CUDA_FAMILIES.fullmatch(symbol):
        return "reserved for CUDA"
    if _TYPES.fullmatch(symbol):
        return "a type of the C library"
    if symbol in _MACROS or _MACRO_FAMILIES.fullmatch(symbol):
        return "a macro of the C library"
    if symbol in _LIBRARY or _VARIANT.sub("", symbol) in _LIBRARY:
        return "a function of the C library"
    if symbol in _MATHEMATICS or _TYPE.sub("", symbol) in _MATHEMATICS:
        return "a mathematical function of C or CUDA"
    return ""
