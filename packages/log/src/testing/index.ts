export * from './crash-file-system.ts';
