/** Programs that tests of real backends need, and the Debian packages that provide them. */
import { existsSync } from 'node:fs';
import { delimiter, join } from 'node:path';

export interface TestTools {
  /** Packages to install. */
  readonly packages: readonly string[];
  /** Programs and libraries that must exist: one of each row. */
  readonly needs: readonly (readonly string[])[];
}

const LIBRARY_DIRS = [
  '/usr/lib',
  '/usr/lib64',
  '/usr/lib/x86_64-linux-gnu',
  '/usr/lib/aarch64-linux-gnu',
  '/usr/local/lib',
];
const SBIN_DIRS = ['/usr/sbin', '/sbin'];

const libraries = (...names: string[]): string[] => LIBRARY_DIRS.flatMap((dir) => names.map((name) => join(dir, name)));

export const SOFTHSM_MODULES = libraries('softhsm/libsofthsm2.so', 'pkcs11/libsofthsm2.so');
export const TPM_MODULES = libraries('libtpm2_pkcs11.so.1', 'pkcs11/libtpm2_pkcs11.so');

export const P11_KIT_MODULES = libraries('pkcs11/p11-kit-client.so');

export const TEST_TOOLS = {
  softhsm: { packages: ['softhsm2'], needs: [['softhsm2-util'], SOFTHSM_MODULES] },
  remote_hsm: {
    packages: ['softhsm2', 'p11-kit', 'p11-kit-modules'],
    needs: [['softhsm2-util'], SOFTHSM_MODULES, ['p11-kit'], P11_KIT_MODULES],
  },
  tpm: {
    packages: [
      'swtpm',
      'tpm2-abrmd',
      'libtss2-tcti-swtpm0',
      'libtss2-tcti-tabrmd0',
      'libtpm2-pkcs11-1',
      'opensc',
      'dbus',
    ],
    needs: [
      ['swtpm'],
      ['tpm2-abrmd'],
      libraries('libtss2-tcti-swtpm.so.0'),
      libraries('libtss2-tcti-tabrmd.so.0'),
      TPM_MODULES,
      ['pkcs11-tool'],
      ['dbus-daemon'],
    ],
  },
  strace: { packages: ['strace'], needs: [['strace']] },
  chromium: { packages: ['chromium'], needs: [['chromium']] },
  nginx: { packages: ['nginx'], needs: [['nginx']] },
  /** The peer of the benchmark of mailbox. */
  nats: { packages: ['nats-server'], needs: [['nats-server']] },
} as const satisfies Record<string, TestTools>;

/** The path of a program or library; undefined if it is not installed. */
export function whereIs(names: readonly string[]): string | undefined {
  const dirs = [...(process.env.PATH ?? '').split(delimiter), ...SBIN_DIRS];
  const places = names.flatMap((name) => (name.startsWith('/') ? [name] : dirs.map((dir) => join(dir, name))));
  return places.find((place) => existsSync(place));
}

/** The packages to install before tests with these tools can run; undefined if all are installed. For `skip` of a test. */
export function missing(tools: TestTools): string | undefined {
  const isThere = tools.needs.every((names) => whereIs(names) !== undefined);
  return isThere ? undefined : `missing programs: apt-get install ${tools.packages.join(' ')}`;
}
