export * from './kms-server.ts';
export * from './remote-hsm.ts';
export * from './soft-hsm.ts';
export * from './software-tpm.ts';
export * from './tools.ts';
