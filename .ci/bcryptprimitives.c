/* ProcessPrng for wine before 8.21, which has no bcryptprimitives.dll; Rust's std takes its random
 * numbers there. Only for tests.
 *
 *     x86_64-w64-mingw32-gcc -shared -O2 -o bcryptprimitives.dll .ci/bcryptprimitives.c -ladvapi32
 */
#include <windows.h>

BOOLEAN NTAPI SystemFunction036(PVOID to, ULONG len); /* RtlGenRandom */

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE to, SIZE_T len)
{
    return SystemFunction036(to, (ULONG)len);
}
