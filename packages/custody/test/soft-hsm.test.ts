import { Pkcs11Backend } from '../src/pkcs11/pkcs11-backend.ts';
import { missing, SoftHsm, TEST_TOOLS } from '../src/testing/index.ts';
import { backendContract } from './contract.ts';

const { signal } = new AbortController();
const skip = missing(TEST_TOOLS.softhsm);

backendContract(
  'pkcs11 on SoftHSM2',
  async () => {
    const { module, token, pin } = await SoftHsm.start();
    const open = (): Promise<Pkcs11Backend> => Pkcs11Backend.open({ module, token, pin, signal });
    let backend = await open();
    return { backend, reopen: async () => (backend = await open()), close: () => backend.close() };
  },
  { skip },
);
