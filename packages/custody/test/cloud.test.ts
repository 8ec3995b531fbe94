import { CloudBackend } from '../src/index.ts';
import { KmsServer } from '../src/testing/index.ts';
import { backendContract } from './contract.ts';

const { signal } = new AbortController();
const credentials = { accessKeyId: 'AKIDEXAMPLE', secretAccessKey: 'not a real one' };

backendContract('cloud by the AWS KMS protocol', async () => {
  const server = await KmsServer.start();
  const open = (): Promise<CloudBackend> =>
    CloudBackend.open({ region: 'eu-north-1', endpoint: server.endpoint, credentials, signal });
  let backend = await open();
  return {
    backend,
    reopen: async () => (backend = await open()),
    async close() {
      await backend.close();
      await server.close();
    },
  };
});
