import { Pkcs11Backend } from '../src/pkcs11/pkcs11-backend.ts';
import { missing, SoftwareTpm, TEST_TOOLS } from '../src/testing/index.ts';
import { backendContract } from './contract.ts';

const { signal } = new AbortController();

backendContract(
  'tpm through tpm2-pkcs11 on a software TPM',
  async () => {
    const tpm = await SoftwareTpm.start();
    const { module, token, pin } = tpm;
    const open = (): Promise<Pkcs11Backend> =>
      Pkcs11Backend.open({ name: 'tpm', module, token, pin, sessions: 1, signal });
    let backend = await open();
    return {
      backend,
      reopen: async () => (backend = await open()),
      async close() {
        await backend.close();
        await tpm.close();
      },
    };
  },
  { skip: missing(TEST_TOOLS.tpm), runs: 5 },
);
