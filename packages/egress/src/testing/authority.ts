/** A certificate authority for tests: made with the `openssl` command in a directory that is removed again. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export interface KeyPair {
  readonly cert: string;
  readonly key: string;
}

export interface CertificateInit {
  /** `DNS:origin.test` or `IP:127.0.0.1`, separated by commas. */
  readonly names: string;
  /** Days from now until it expires; negative for one that has expired. Default 2. */
  readonly days?: number;
}

const CURVE = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];

export class Authority implements Disposable {
  readonly #dir = mkdtempSync(join(tmpdir(), 'ron-authority-'));
  readonly pem: string;
  #count = 0;

  constructor() {
    this.#openssl('req', '-x509', ...CURVE, '-days', '2', '-subj', '/CN=test authority', ...this.#files('ca'));
    this.pem = readFileSync(join(this.#dir, 'ca.pem'), 'utf8');
  }

  /** A certificate that this authority signed. */
  issue(init: CertificateInit): KeyPair {
    const name = `leaf${this.#count++}`;
    const extensions = join(this.#dir, `${name}.ext`);
    const request = join(this.#dir, `${name}.csr`);
    writeFileSync(extensions, `subjectAltName=${init.names}\nbasicConstraints=CA:FALSE\n`);
    this.#openssl('req', ...CURVE, '-subj', '/CN=leaf', '-keyout', this.#path(name, 'key'), '-out', request);
    const days = ['-days', String(init.days ?? 2)];
    const signer = ['-CA', this.#path('ca', 'pem'), '-CAkey', this.#path('ca', 'key'), '-CAcreateserial'];
    this.#openssl(
      'x509',
      '-req',
      '-in',
      request,
      ...signer,
      ...days,
      '-extfile',
      extensions,
      '-out',
      this.#path(name, 'pem'),
    );
    return this.#read(name);
  }

  /** A certificate that signed itself. */
  selfSigned(names: string): KeyPair {
    const name = `self${this.#count++}`;
    const subject = ['-subj', '/CN=self', '-addext', `subjectAltName=${names}`];
    this.#openssl('req', '-x509', ...CURVE, '-days', '2', ...subject, ...this.#files(name));
    return this.#read(name);
  }

  [Symbol.dispose](): void {
    rmSync(this.#dir, { recursive: true, force: true });
  }

  #path(name: string, ending: string): string {
    return join(this.#dir, `${name}.${ending}`);
  }

  #files(name: string): string[] {
    return ['-keyout', this.#path(name, 'key'), '-out', this.#path(name, 'pem')];
  }

  #read(name: string): KeyPair {
    return { cert: readFileSync(this.#path(name, 'pem'), 'utf8'), key: readFileSync(this.#path(name, 'key'), 'utf8') };
  }

  #openssl(...args: string[]): void {
    execFileSync('openssl', args, { stdio: 'ignore' });
  }
}
