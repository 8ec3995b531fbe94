export { schema, type KmsConfig } from './config.ts';
export { startKms, type Kms, type KmsInit } from './service.ts';
