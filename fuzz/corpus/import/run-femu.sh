#!/bin/sh
# A drive of 4 GiB for FEMU.
secs_per_pg=8 # pages of 4 KiB
nchs=8
FEMU_OPTIONS="-device femu,devsz_mb=4096,femu_mode=1"
FEMU_OPTIONS=${FEMU_OPTIONS}",secsz=512,secs_per_pg=${secs_per_pg}"
FEMU_OPTIONS=${FEMU_OPTIONS}",pgs_per_blk=256,blks_per_pl=160,pls_per_lun=1,luns_per_ch=4"
FEMU_OPTIONS=${FEMU_OPTIONS}",nchs=$nchs,ch_xfer_lat=0,gc_thres_pcent=75,gc_thres_pcent_high=95"
#FEMU_OPTIONS=${FEMU_OPTIONS}",femu_mode=2"
