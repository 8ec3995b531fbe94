export * from './crash-file-system.ts';
export * from './faulty-disk.ts';
